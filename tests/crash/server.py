"""Carries out verbs of orch, each in a fork of a process that has loaded everything; kills one where told.

Reads one JSON object a line: {"verb", "arguments", "kill_before"}; answers {"count", "last", "killed",
"error", "exit_code", "value"}.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from orchestrator import hosts
from orchestrator.errors import OrchError
from tests import forked_orch
from tests.crash import calls, cloud
from tests.crash.points import Points
from tests.opened_cloud import open_always


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    PREPARED.get(kind, lambda: None)()
    forked_orch.prepare({})  # so that no fork imports anything
    from orchestrator import api

    os.chdir(folder)
    for line in sys.stdin:
        print(json.dumps(_carried_out(api, json.loads(line))), flush=True)


def _memory() -> None:
    open_always("memory", "tests.crash.cloud:open_stored")
    hosts.connect = cloud.connect


def _aws() -> None:
    import boto3  # noqa: F401 (so that no fork needs to load it)

    from orchestrator.providers.aws.provider import AwsProvider

    AwsProvider.list_lag_s = LAG_S
    calls.announce()


def _google() -> None:
    from google.cloud import compute_v1  # noqa: F401

    from orchestrator.providers.gcp.provider import GcpProvider

    GcpProvider.list_lag_s = LAG_S
    calls.announce()


PREPARED = {"memory": _memory, "aws": _aws, "gcp": _google}

LAG_S = 3.0
"""How long an emulated cloud may list late, in seconds: ten times as long as they do."""


def _carried_out(api: Any, order: dict[str, Any]) -> dict[str, Any]:
    points = Points()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        points.arm(order["kill_before"])
        _call(api, order, writing)
    os.close(writing)
    with open(reading, "rb") as said:
        told = said.read()
    _, status = os.waitpid(child, 0)
    answer = json.loads(told) if told else {"error": "killed", "value": None, "exit_code": None}
    return {"count": points.count, "last": points.last, "killed": os.WIFSIGNALED(status), **answer}


def _call(api: Any, order: dict[str, Any], writing: int) -> None:
    """In the fork: never returns."""
    try:
        answer = _outcome(getattr(api, order["verb"]), order["arguments"])
        os.write(writing, json.dumps(answer, default=str).encode())
    finally:
        os._exit(0)


def _outcome(verb: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        value = verb(**arguments)
    except OrchError as error:
        shown = f"{error.kind}: {error.message}"
        return {"error": shown, "exit_code": error.exit_code, "value": None}
    except BaseException:
        return {"error": traceback.format_exc(), "exit_code": None, "value": None}
    shown = value.as_json() if hasattr(value, "as_json") else str(value)
    return {"error": None, "exit_code": 0, "value": shown}


if __name__ == "__main__":
    main()
