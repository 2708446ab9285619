"""Measure the cost of a batch: seconds of cores and bytes read, for an input pipeline that is idle before and
after.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Optional

from .batch import bytes_of
from .meter import bytes_read

_MOST_BATCHES = 32
_MOST_SECONDS = 5.0
_REST = 0.1
_RESTING = 0.02
"""Seconds of CPU time in _REST seconds; below this, nothing is being prepared any more."""

_PATIENCE = 10.0


def measure(pull: Callable[[], Any]) -> Optional[Dict[str, Any]]:
    """Pull batches for a few seconds at most, and return the cost of one; None if none was left.

    Batches that are prepared ahead are accounted for: buffers are as full afterwards as before.
    """
    idle = _rest()
    cpu, began, read = time.process_time(), time.perf_counter(), bytes_read()
    count, size = 0, 0
    while count < _MOST_BATCHES and time.perf_counter() - began < _MOST_SECONDS:
        try:
            batch = pull()
        except Exception:  # the end of the input, whatever its exception
            break
        size = max(size, bytes_of(batch))
        count += 1
    seconds = time.perf_counter() - began
    if not count:
        return None
    _rest()
    spent = time.process_time() - cpu - idle * (time.perf_counter() - began)
    return {
        "batches": count,
        "cpu": round(max(0.0, spent) / count, 6),
        "seconds": round(seconds / count, 6),
        "bytes_read": (bytes_read() - read) // count,
        "batch_bytes": size,
    }


def _rest() -> float:
    """Wait until nothing is prepared ahead; returns the number of cores that stay busy."""
    until = time.perf_counter() + _PATIENCE
    while True:
        cpu = time.process_time()
        time.sleep(_REST)
        spent = time.process_time() - cpu
        if spent < _RESTING or time.perf_counter() > until:
            return spent / _REST if spent < _RESTING else 0.0
