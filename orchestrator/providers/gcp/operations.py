"""Follow an operation until it is done, at the endpoint where it was started.

The library's ExtendedOperation always uses Google's public endpoint. Here the operation is read by its name
at the configured endpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

Json = Mapping[str, Any]

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0

_OLD = timedelta(seconds=30)
"""An operation that began this long before the request is an earlier one, which Google remembers."""


def is_done(operation: Json) -> bool:
    return operation.get("status") == "DONE"


def is_begun(operation: Json) -> bool:
    return operation.get("status") in ("RUNNING", "DONE")


def is_remembered(operation: Json, asked: datetime) -> bool:
    """Return whether Google answered with an old operation, which it keeps for its request id."""
    try:
        began = datetime.fromisoformat(str(operation["insertTime"]))
    except (KeyError, ValueError):
        return False
    return is_done(operation) and began.astimezone(UTC) < asked - _OLD


def follow(
    operation: Json,
    ask: Callable[[str], Json | None],
    until: Callable[[Json], bool],
    patience_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Json:
    """Return the operation once `until` holds, or its last state after `patience_s` seconds.

    If Google no longer has the operation (`ask` returns None), its last known state is returned; the caller
    then checks for the effect.
    """
    end = clock() + patience_s
    pause = _FIRST_PAUSE_S
    while not until(operation) and clock() < end:
        sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)
        asked = ask(str(operation["name"]))
        if asked is None:
            return operation
        operation = asked
    return operation
