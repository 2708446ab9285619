"""Check from time to time whether the loss that a training step returns is finite."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any

from .log import StepLog

EVERY = 5.0
"""Seconds between two checks, each of which waits for the device."""


class LossCheck:
    """Write a `not_finite` line once. A result without a readable loss is ignored."""

    def __init__(self) -> None:
        self._due = perf_counter() + 1.0
        self._over = False

    def look(self, log: StepLog, result: Any, step: int) -> None:
        """Check a result. `result`: what a train function of Keras returned, a mapping with the loss."""
        now = perf_counter()
        if self._over or now < self._due:
            return
        self._due = now + EVERY
        try:
            value = float(result["loss"])
        except Exception:  # another kind of result, which cannot be read
            self._over = True
            return
        if not math.isfinite(value):
            self._over = True
            log.note({"event": "not_finite", "what": "loss", "value": str(value), "step": step})
