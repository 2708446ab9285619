"""The pace of a run (steps, epoch, metrics, cost), read from its growing trace and output on the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator import jobs
from orchestrator.model import Agent, Host
from orchestrator.model.progress import Pace, Watching
from orchestrator.profiling.pace import PaceMeter, Remaining
from orchestrator.runs.curves import read_line

if TYPE_CHECKING:
    from orchestrator.session.session import Session

_TRACE, _OUTPUT = "trace.jsonl", "output.log"
_FIRST = 1 << 16
"""Bytes of a trace's beginning, where its header is."""
_MOST = 1 << 20
"""Most bytes that are read at a time. Of a file that grew by more, only the last bytes are read."""
_LONGEST_LINE = 4096
_LINES = 100
"""Lines at the end of a piece of output that are parsed; earlier ones are skipped to keep up with a job that
prints much.
"""


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
        for line in lines[-_LINES:]:
            told = read_line(line.decode(errors="replace"))
            if told.axis == "epoch":
                self.epoch, self.epochs = told.at, told.of
            self.metrics = told.metrics or self.metrics


class PaceReader:
    """Reads the pace of one run from its machine. `printed`: filled by the caller that receives the run's
    output.
    """

    def __init__(self, agent: Agent, run_id: str, price: float) -> None:
        self.printed = Printed()
        self._agent = agent
        self._run_id = run_id
        self._price = price
        self._meter, self._remaining = PaceMeter(), Remaining()
        self._read = {_TRACE: 0, _OUTPUT: 0}

    def poll(self, host: Host) -> Pace:
        """Return the pace now. Raises HostError."""
        behind = self._read_on(host, _TRACE, _MOST if self._read[_TRACE] else _FIRST)
        if behind > _MOST:
            self._read[_TRACE] += behind - _MOST
            self._meter.skip()
        if behind:
            self._read_on(host, _TRACE, _MOST)
        return self._pace()

    def poll_output(self, host: Host) -> None:
        """Read what the run printed since the last poll. Raises HostError."""
        behind = self._read_on(host, _OUTPUT, _FIRST)
        if behind:
            self._read[_OUTPUT] += max(0, behind - _FIRST)
            self._read_on(host, _OUTPUT, _FIRST)

    def _read_on(self, host: Host, name: str, most: int) -> int:
        """Read up to `most` bytes more of a file; returns how many are left."""
        size, data = jobs.grown(host, self._agent, self._run_id, name, self._read[name], most)
        if name == _TRACE:
            self._meter.add(data)
        else:
            self.printed.read(data)
        self._read[name] += len(data)
        return max(0, size - self._read[name])

    def _pace(self) -> Pace:
        """Return the pace. Printed epochs and metrics take precedence over counted steps."""
        found, printed = self._meter.pace(), self.printed
        if printed.epoch is not None:
            found = replace(found, epoch=printed.epoch, epochs=printed.epochs or found.epochs)
        done, seconds = _share_done(found), found.seconds or 0.0
        if done is not None:
            self._remaining.add(done, seconds)
        left = self._remaining.seconds(seconds)
        return replace(found, left=left, metrics=dict(printed.metrics), price=self._price)


class Paced:
    """Passes the run's pace to `watching` each time that it was read."""

    what = "The pace"

    def __init__(self, session: Session, run_id: str, watching: Watching) -> None:
        self._reader = PaceReader(session.agent, run_id, session.ledger.lease().price)
        self._watching = watching
        self.printed = self._reader.printed
        self.every_s = watching.every_s

    def poll(self, host: Host) -> None:
        """Raises HostError."""
        self._watching.pace(self._reader.poll(host))


def _share_done(pace: Pace) -> float | None:
    """Return the share of the training that is done: by its steps, else by its epochs."""
    if pace.steps is not None and pace.all_steps:
        return min(1.0, pace.steps / pace.all_steps)
    if pace.epoch and pace.epochs:
        return min(1.0, (pace.epoch - 1) / pace.epochs)
    return None
