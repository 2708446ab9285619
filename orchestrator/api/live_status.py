"""top: what this project's machines and runs are doing now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import HostError, OrchError
from orchestrator.leases.status import status
from orchestrator.ledger import Lease
from orchestrator.model import Host, LeaseStatus, MachineState
from orchestrator.model.progress import Pace
from orchestrator.providers import open_provider
from orchestrator.runs.pace import PaceReader
from orchestrator.session import connect as connecting
from orchestrator.session.machines import machines_of
from orchestrator.session.project import Project

_ASK_EVERY_S = 15.0
"""Seconds between two questions to the clouds; the machines themselves are asked at every look."""
_ANSWER_S = 5.0
_GOING = ("started", "running")


@dataclass(frozen=True)
class Now:
    """The open leases, and the pace of each active run by its id. `problems`: why the pace of one is not
    known.
    """

    leases: tuple[LeaseStatus, ...]
    paces: Mapping[str, Pace]
    problems: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "leases": [lease.as_json() for lease in self.leases],
            "paces": {run_id: asdict(pace) for run_id, pace in self.paces.items()},
            "problems": list(self.problems),
        }


@contextmanager
def top(*, folder: Path | str | None = None) -> Iterator[Top]:
    """Yield a `Top`, which can be asked repeatedly. Its connections are kept until the block ends."""
    found = Top(Project.at(folder))
    try:
        yield found
    finally:
        found.close()


@dataclass
class _Machine:
    """A lease's machine and its runs, while it can be reached."""

    host: Host
    readers: dict[str, PaceReader] = field(default_factory=dict)


class Top:
    """Asks the machines of a project's open leases and their runs, see `top`."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._machines: dict[str, _Machine] = {}
        self._leases: tuple[LeaseStatus, ...] = ()
        self._asked_at: float | None = None

    def look(self) -> Now:
        """Ask now. What cannot be reached is named in the result. Raises ProviderError from the clouds."""
        if self._asked_at is None or time.monotonic() - self._asked_at >= _ASK_EVERY_S:
            self._leases = status(folder=self._project.root, ask=True)
            self._asked_at = time.monotonic()
        leases = {lease.id: lease for lease in self._project.open_leases()}
        self._leases = tuple(each for each in self._leases if each.lease in leases)
        paces: dict[str, Pace] = {}
        problems: list[str] = []
        for each in self._leases:
            try:
                paces.update(self._paces(leases[each.lease], each))
            except HostError as error:
                self._hang_up(each.lease)
                problems.append(error.message)
        return Now(self._leases, paces, tuple(problems))

    def close(self) -> None:
        for lease in tuple(self._machines):
            self._hang_up(lease)

    def _paces(self, lease: Lease, told: LeaseStatus) -> Mapping[str, Pace]:
        going = {run["run_id"] for run in told.runs if run["state"] in _GOING}
        runs = {run_id: run for run_id, run in lease.runs.items() if run_id in going and run.draft.agent}
        machine = self._reached(lease, told) if runs else None
        if machine is None:
            return {}
        for run_id, run in runs.items():
            if run_id not in machine.readers and run.draft.agent:
                machine.readers[run_id] = PaceReader(run.draft.agent, run_id, told.price)
        return {run_id: _pace(machine.host, machine.readers[run_id]) for run_id in runs}

    def _reached(self, lease: Lease, told: LeaseStatus) -> _Machine | None:
        if told.state != MachineState.RUNNING:
            self._hang_up(lease.id)
            return None
        if lease.id not in self._machines:
            provider = open_provider(told.cloud)
            machine = next(iter(machines_of(provider, lease)), None)
            endpoint = provider.endpoint(machine) if machine else None
            if machine is None or not endpoint:
                return None
            host = connecting.connect(self._project, lease, machine, endpoint, timeout=_ANSWER_S)
            self._machines[lease.id] = _Machine(host)
        return self._machines[lease.id]

    def _hang_up(self, lease: str) -> None:
        if (machine := self._machines.pop(lease, None)) is not None:
            with suppress(OrchError, OSError):
                machine.host.close()


def _pace(host: Host, reader: PaceReader) -> Pace:
    reader.poll_output(host)
    return reader.poll(host)
