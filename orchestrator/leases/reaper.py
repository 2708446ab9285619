"""`orch gc --others` as a function that a cloud runs on a schedule; it needs only the cloud's own library.

The call fails if a machine may be past its deadline, or a region did not answer; terraform/ sets up a mail
alert.
"""

from __future__ import annotations

import json
import os
from typing import Any

from orchestrator.leases.gc import gc
from orchestrator.model import Silent

CLOUD = "ORCH_REAPER_CLOUD"


class Unproven(RuntimeError):
    """Not every machine past its deadline is confirmed gone."""


class Printed(Silent):
    """Progress as lines of the function's log."""

    def say(self, text: str) -> None:
        print(text, flush=True)


def handler(event: object, context: object) -> dict[str, Any]:  # noqa: ARG001 (as Lambda calls it)
    """Delete machines past their deadline on the cloud that the environment names.

    Raises Unproven, and what `gc` raises.
    """
    report = gc([os.environ[CLOUD]], others=True, progress=Printed())
    value = report.as_json()
    print(json.dumps(value), flush=True)
    if not report.proven:
        raise Unproven(json.dumps(value))
    return value
