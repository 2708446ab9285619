"""Invariants that hold after every step, whatever was killed, lost or done at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.ledger import Lease
from orchestrator.runs import attempts
from orchestrator.session.project import Project
from tests.histories.world import LASTS, World

_CENT = 0.01


@dataclass
class Promises:
    """`foreign`: machines of another user. `over`: machines that ended by themselves, or were to.

    `discarded`: (lease, run) that somebody was ready to lose. `damaged`: leases with a line that was damaged.
    """

    world: World
    foreign: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)
    discarded: set[tuple[str, str]] = field(default_factory=set)
    damaged: set[str] = field(default_factory=set)
    _lines: dict[Path, bytes] = field(default_factory=dict)
    _costs: dict[str, float] = field(default_factory=dict)

    def hold(self) -> None:
        alive = {machine.id for machine in self.world.cloud.alive()}
        assert self.foreign - self.over <= alive, "somebody else's machine was ended"
        for place in self.world.places:
            for lease in place.leases():
                self._of_lease(place, lease)

    def ended(self, machine: str) -> None:
        self.over.add(machine)

    def discard(self, who: int) -> None:
        """Whoever asks for that is ready to lose what was not fetched."""
        for lease in self.world.places[who].open_leases():
            self.discarded |= {(lease.id, run) for run in lease.runs}

    def not_for_gc(self) -> set[str]:
        """The machines that it must leave: before their deadline, somebody else's, or with results that
        nobody has."""
        alive = {machine.id for machine in self.world.cloud.alive()}
        leases = [lease for place in self.world.places for lease in place.open_leases()]
        wanted = {
            machine.id for lease in leases if lease.uncollected for machine in self.world.machines(lease.id)
        }
        return alive - self.world.cloud.stuck | alive & (self.foreign | wanted)

    def made_again(self) -> set[str]:
        """Machines before their deadline: one may bear the id of one that outlived its own, where the line of
        that attempt was damaged."""
        now = self.world.clock()
        return {one.id for one in self.world.cloud.alive() if one.created_at.timestamp() + LASTS + 600 > now}

    def line_damaged(self, lease: Lease, path: Path) -> None:
        """What such a ledger does not tell cannot be promised; its machine can, and the other lines."""
        self.damaged.add(lease.id)
        self._lines[path] = path.read_bytes()

    def before_down(self, who: int, discard: bool) -> Before:
        if discard:
            self.discard(who)
        leases = self.world.places[who].open_leases()
        there = {lease.id: bool(self.world.machines(lease.id)) for lease in leases}
        return Before(self.world, who, discard, {lease.id: lease for lease in leases}, there)

    # ------------------------------------------------------------ one lease

    def _of_lease(self, project: Project, lease: Lease) -> None:
        machines = self.world.machines(lease.id)
        assert len(machines) <= 1, machines
        if machines:
            assert lease.open, "the lease is closed, and its machine runs"
            assert project.identity(lease.id).exists(), "the key is gone, and its machine runs"
        self._lines_are_kept(project, lease)
        if lease.id not in self.damaged:
            self._cost_is_whole(lease)
            self._no_run_is_forgotten(project, lease)
        self._earlier_attempts_are_released(lease)

    def _lines_are_kept(self, project: Project, lease: Lease) -> None:
        path = project.ledger(lease.id).path
        now = path.read_bytes()
        assert now.startswith(self._lines.get(path, b"")), "a line of the ledger was changed or removed"
        self._lines[path] = now

    def _cost_is_whole(self, lease: Lease) -> None:
        """It may fall to what was really used, once it is known when a machine ended, and never below."""
        now = self.world.clock()
        cost, before = lease.cost(now), self._costs.get(lease.id, 0.0)
        assert cost >= min(before, self._used(lease, now)) - _CENT * 0.01, "what was used is not in the cost"
        self._costs[lease.id] = cost

    def _used(self, lease: Lease, now: float) -> float:
        """US dollars of the machines that the ledger knows, until their end."""
        usd = 0.0
        for holding in lease.holdings:
            ended = self.world.cloud.ended_at(holding.id)
            until = min(now if ended is None else ended, holding.deadline or now)
            usd += max(0.0, until - holding.created_at) / 3600 * holding.price
        return usd

    def _no_run_is_forgotten(self, project: Project, lease: Lease) -> None:
        """What is called home or lost has a record. Of a closed lease each run is that, or was given up."""
        for run in lease.runs.values():
            recorded = attempts.latest_attempt(project.run(run.run_id)) is not None
            assert recorded or not (run.collected or run.lost), run
            given_up = (lease.id, run.run_id) in self.discarded
            assert lease.open or run.collected or given_up or run.lost, run

    def _earlier_attempts_are_released(self, lease: Lease) -> None:
        """A replaced attempt does not count as use of a machine."""
        for machine in self.world.machines(lease.id):
            for name, run in self.world.guests.runs(machine.id).items():
                assert run.collected or "@" not in name, f"{name} counts as use until the deadline"


@dataclass
class Before:
    """The state before a `down`, and checks of its report. `there`: leases whose machine ran."""

    world: World
    who: int
    discard: bool
    leases: dict[str, Lease]
    there: dict[str, bool]

    def held(self, report: Any) -> None:
        assert report.proven_gone
        told = {one["run_id"] for one in report.lost}
        for name, lease in self.leases.items():
            assert not self.world.machines(name)
            left = {run.run_id for run in lease.uncollected}
            if self.there[name]:
                assert self.discard or not left, "results went with the machine, and nobody had said so"
            elif not self.discard:
                assert left <= told, "results were lost before, and down does not say so"
