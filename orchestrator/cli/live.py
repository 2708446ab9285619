"""The live view of a run on a terminal: its output, and below that a line with its pace."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from orchestrator.cli import progress
from orchestrator.cli.command_log import CommandLog, current, is_quiet
from orchestrator.cli.startup_lines import Folded
from orchestrator.cli.status_line import StatusLine
from orchestrator.cli.terminal import Shown, ours
from orchestrator.model.progress import Output, Pace, Progress
from orchestrator.report.pace import pace_line

_EVERY_S = 2.0
_REDRAW_S = 1.0


class Live(progress.Moving):
    """Progress on a terminal, and the output of a run. See `Watching`."""

    every_s = _EVERY_S

    def __init__(self, stream: TextIO, messages: TextIO, log: CommandLog | None = None) -> None:
        super().__init__(messages, log)
        self._out = stream.buffer
        self._line = StatusLine(self._out)
        self._folded, self._shown = Folded(), Shown()
        self._pace: tuple[Pace, float] | None = None
        self._ticking: threading.Event | None = None

    def output(self, data: bytes) -> None:
        """Show the next bytes that the run printed."""
        self._write(self._folded.piece(data))

    def _print(self, text: str) -> None:
        with self._line.lock:
            super()._print(text)

    def transfer(self, label: str, done: int, total: int) -> None:
        with self._line.lock:
            super().transfer(label, done, total)

    def pace(self, pace: Pace | None) -> None:
        if pace is None:
            self.close()
            return
        with self._line.lock:
            self._pace = (pace, time.monotonic())
            if self._ticking is None:
                self._ticking = threading.Event()
                threading.Thread(target=self._tick, args=(self._ticking,), daemon=True).start()
        self._draw()

    def close(self) -> None:
        """Remove the status line. The next run draws it again."""
        with self._line.lock:
            if self._ticking is not None:
                self._ticking.set()
                self._ticking = None
            self._line.close()
            self._pace = None

    def end(self) -> None:
        """Show buffered output, and remove the status line."""
        self.close()
        self._write(self._folded.rest())

    def _write(self, data: bytes) -> None:
        with self._line.lock:
            self._out.write(self._shown.piece(data))
            self._out.flush()

    def _tick(self, ends: threading.Event) -> None:
        while not ends.wait(_REDRAW_S):
            self._draw()

    def _draw(self) -> None:
        """Draw the line. A closed terminal is ignored here: writing the output reports it."""
        with self._line.lock, suppress(OSError, ValueError):
            width = self._line.columns
            if self._pace is not None:
                pace, told_at = self._pace
                text = pace_line(pace, since=time.monotonic() - told_at, columns=width)
                self._line.draw(ours(text), width)


@contextmanager
def following(as_json: bool, *, live: bool = True) -> Iterator[tuple[Output, Progress]]:
    """Yield a writer for a run's output, and the progress of the call: a live view on a terminal, plain lines
    elsewhere, in a quiet command, or without `live`.
    """
    from orchestrator.cli import runs

    stream = sys.stderr if as_json else sys.stdout
    log = current()
    if is_quiet() or not (live and stream.isatty() and progress.is_moving()):
        yield runs.output(as_json), progress.progress()
        return
    view = Live(stream, sys.stderr, log)
    progress.listen(view)
    try:
        yield view.output, view
    finally:
        view.end()
