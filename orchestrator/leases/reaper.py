"""`orch gc --others` as a function that a cloud calls on a schedule; it needs the cloud's own library alone.

A machine that may have outlived its deadline fails the call, as does a region that did not answer: terraform/
sends mail then.
"""

from __future__ import annotations

import json
import os
from typing import Any

from orchestrator.leases.gc import gc
from orchestrator.model import Silent

CLOUD = "ORCH_REAPER_CLOUD"


class Unproven(RuntimeError):
    """Not every machine that outlived its deadline is proven gone."""


class Printed(Silent):
    """Progress as lines of the function's log."""

    def say(self, text: str) -> None:
        print(text, flush=True)


def handler(event: object, context: object) -> dict[str, Any]:  # noqa: ARG001 (as Lambda calls it)
    """End what is late on the cloud that the environment names. Raises Unproven, and what `gc` raises."""
    report = gc([os.environ[CLOUD]], others=True, progress=Printed())
    value = report.as_json()
    print(json.dumps(value), flush=True)
    if not report.proven:
        raise Unproven(json.dumps(value))
    return value
