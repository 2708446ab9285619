"""Tell how a run is doing while it is followed, by its trace, which is read as it grows, and its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator import jobs
from orchestrator.model import Host
from orchestrator.model.progress import Pace as Told
from orchestrator.model.progress import Watching
from orchestrator.profiling.pace import PaceMeter, Remaining
from orchestrator.runs.curves import said

if TYPE_CHECKING:
    from orchestrator.session.session import Session

_FIRST = 1 << 16
"""Bytes of a trace's beginning, where its header is."""
_MOST = 1 << 20
"""Bytes of one look. Of a trace that grew by more, the last ones are read."""


_LONGEST_LINE = 4096


class Printed:
    """What a run printed last: its epoch, and its metrics."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.epochs: int | None = None
        self.metrics: Mapping[str, float] = {}
        self._begun = b""

    def read(self, data: bytes) -> None:
        *lines, begun = (self._begun + data).split(b"\n")
        self._begun = begun[-_LONGEST_LINE:]
        for line in lines:
            told = said(line.decode(errors="replace"))
            if told.axis == "epoch":
                self.epoch, self.epochs = told.at, told.of
            self.metrics = told.metrics or self.metrics


class Pace:
    """Tells `watching` how the run is doing, each time that the machine is asked."""

    what = "The pace"

    def __init__(self, session: Session, run_id: str, watching: Watching) -> None:
        self._session = session
        self._run_id = run_id
        self._watching = watching
        self._meter, self._remaining = PaceMeter(), Remaining()
        self.printed = Printed()
        self._read = 0
        self._price = session.ledger.lease().price
        self.every_s = watching.every_s

    def look(self, host: Host) -> None:
        """Raises HostError."""
        behind = self._read_on(host, _MOST if self._read else _FIRST)
        if behind > _MOST:
            self._read += behind - _MOST
            self._meter.skip()
        if behind:
            self._read_on(host, _MOST)
        self._watching.pace(self._pace())

    def _pace(self) -> Told:
        """Return the pace with what was printed, which is told rather than what was counted."""
        found, printed = self._meter.pace(), self.printed
        if printed.epoch is not None:
            found = replace(found, epoch=printed.epoch, epochs=printed.epochs or found.epochs)
        done, seconds = _share_done(found), found.seconds or 0.0
        if done is not None:
            self._remaining.add(done, seconds)
        left = self._remaining.seconds(seconds)
        return replace(found, left=left, metrics=dict(printed.metrics), price=self._price)

    def _read_on(self, host: Host, most: int) -> int:
        """Read up to `most` bytes more; returns how many are left."""
        size, data = jobs.trace(host, self._session.agent, self._run_id, self._read, most)
        self._meter.add(data)
        self._read += len(data)
        return max(0, size - self._read)


def _share_done(pace: Told) -> float | None:
    """Return the share of the training that is done: by its steps, else by its epochs."""
    if pace.steps is not None and pace.all_steps:
        return min(1.0, pace.steps / pace.all_steps)
    if pace.epoch and pace.epochs:
        return min(1.0, (pace.epoch - 1) / pace.epochs)
    return None
