"""Follow an operation until it is done, at the endpoint where it was started.

The stock extended operation asks Google's public endpoint whatever its client was told. Here the name is
asked for by a client of ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

Json = Mapping[str, Any]

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


def is_done(operation: Json) -> bool:
    return operation.get("status") == "DONE"


def is_begun(operation: Json) -> bool:
    return operation.get("status") in ("RUNNING", "DONE")


def follow(
    operation: Json,
    ask: Callable[[str], Json | None],
    until: Callable[[Json], bool],
    patience_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Json:
    """The operation as it is once `until` holds, or as it was last when `patience_s` ran out.

    One that Google does not know (`ask` gives None) is as it was last: what it was to do tells the rest.
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
