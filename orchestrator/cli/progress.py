"""Progress on stderr: one updated line with sizes and rates on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from orchestrator.cli.command_log import CommandLog, Loudness, current
from orchestrator.cli.terminal import ours
from orchestrator.report.units import duration, size

_REDRAW_SECONDS = 0.1


class Lines:
    """Plain lines: one per step, and one per completed transfer. `log` gets them all.

    A quiet command prints notices only, a verbose one details too.
    """

    def __init__(self, stream: TextIO, log: CommandLog | None = None) -> None:
        self._stream = stream
        self._log = log
        self._loudness = log.loudness if log else Loudness.NORMAL
        self._begun: dict[str, float] = {}
        self._operations: list[tuple[str, float]] = []

    def say(self, text: str) -> None:
        self._keep(text)
        if self._loudness is not Loudness.QUIET:
            self._print(text)

    def notice(self, text: str) -> None:
        self._keep(text)
        self._print(text)

    def detail(self, text: str) -> None:
        """Report a detail that helps only in finding the cause of a problem."""
        self._keep(text)
        if self._loudness is Loudness.VERBOSE:
            self._print(f"  {text}")

    def transfer(self, label: str, done: int, total: int) -> None:
        if not total:
            self._operation(label)
            return
        begun = self._begun.setdefault(label, time.monotonic())
        if done >= total and total > 0:
            del self._begun[label]
            self.say(f"  {label}: {size(total)}{_rate(total, time.monotonic() - begun)}")

    def _operation(self, label: str) -> None:
        """Note that the operation `label` has begun, or with "" that the last one has ended."""
        if label:
            self._operations.append((label, time.monotonic()))
        elif self._operations:
            ended, begun = self._operations.pop()
            self.detail(f"{ended}: {time.monotonic() - begun:.2f} s")

    def _keep(self, text: str) -> None:
        if self._log:
            self._log.line(text)

    def _print(self, text: str) -> None:
        print(ours(text), file=self._stream, flush=True)


class Moving(Lines):
    """Progress for a terminal: the line of the current transfer is updated in place."""

    def __init__(self, stream: TextIO, log: CommandLog | None = None) -> None:
        super().__init__(stream, log)
        self._drawn = 0.0

    def transfer(self, label: str, done: int, total: int) -> None:
        if not total:
            self._redraw(f"  {ours(label)} …" if label else "")
            super().transfer(label, done, total)
            return
        now = time.monotonic()
        begun = self._begun.get(label, now)
        if done < total and now - self._drawn >= _REDRAW_SECONDS:
            self._drawn = now
            self._redraw(f"  {label}: {size(done)} of {size(total)}{_rate(done, now - begun)}")
        super().transfer(label, done, total)

    def _redraw(self, text: str) -> None:
        if self._loudness is not Loudness.QUIET:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()

    def _print(self, text: str) -> None:
        self._stream.write("\r\x1b[K")
        super()._print(text)


def _rate(count: int, seconds: float) -> str:
    if seconds < 0.05 or count < 1 << 20:
        return ""
    return f", {size(count / seconds)}/s, {duration(seconds)}"


def progress(environ: Mapping[str, str] = os.environ) -> Lines:
    """Return the progress reporter for this stderr. TERM=dumb and CI disable redrawing."""
    log = current()
    made = Moving(sys.stderr, log) if is_moving(environ) else Lines(sys.stderr, log)
    listen(made)
    return made


def listen(to: Lines) -> None:
    """Pass log messages of orch's modules, such as commands on a machine and retried calls, to `to` as
    details.
    """
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            to.detail(record.getMessage())

    logger = logging.getLogger("orchestrator")
    logger.handlers[:] = [Handler()]
    logger.setLevel(logging.DEBUG)
    logger.propagate = False


def is_moving(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether stderr is a terminal on which lines may be redrawn."""
    return sys.stderr.isatty() and environ.get("TERM") != "dumb" and not environ.get("CI")
