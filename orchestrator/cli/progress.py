"""Progress on stderr: one updated line with sizes and rates on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from orchestrator.cli.terminal import ours
from orchestrator.report.units import duration, size

_REDRAW_SECONDS = 0.1


class Lines:
    """Plain lines: one per step, and one per completed transfer."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun: dict[str, float] = {}

    def say(self, text: str) -> None:
        print(ours(text), file=self._stream, flush=True)

    def transfer(self, label: str, done: int, total: int) -> None:
        if not total:
            return
        begun = self._begun.setdefault(label, time.monotonic())
        if done >= total and total > 0:
            del self._begun[label]
            self.say(f"  {label}: {size(total)}{_rate(total, time.monotonic() - begun)}")


class Moving(Lines):
    """Lines for a terminal: the current transfer is redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._drawn = 0.0

    def say(self, text: str) -> None:
        self._stream.write("\r\x1b[K")
        super().say(text)

    def transfer(self, label: str, done: int, total: int) -> None:
        if not total:
            self._stream.write(f"\r\x1b[K{f'  {ours(label)} …' if label else ''}")
            self._stream.flush()
            return
        now = time.monotonic()
        begun = self._begun.get(label, now)
        if done < total and now - self._drawn >= _REDRAW_SECONDS:
            self._drawn = now
            self._stream.write(f"\r\x1b[K  {label}: {size(done)} of {size(total)}{_rate(done, now - begun)}")
            self._stream.flush()
        super().transfer(label, done, total)


def _rate(count: int, seconds: float) -> str:
    if seconds < 0.05 or count < 1 << 20:
        return ""
    return f", {size(count / seconds)}/s, {duration(seconds)}"


def progress(environ: Mapping[str, str] = os.environ) -> Lines:
    """Choose for this stderr. TERM=dumb and CI disable redrawing."""
    return Moving(sys.stderr) if is_moving(environ) else Lines(sys.stderr)


def is_moving(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether stderr is a terminal on which lines may be redrawn."""
    return sys.stderr.isatty() and environ.get("TERM") != "dumb" and not environ.get("CI")
