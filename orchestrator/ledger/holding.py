"""One machine of a lease: how long it ran, by clocks that may both be wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.model import MachineFacts


@dataclass(frozen=True)
class Holding:
    """One machine that the lease had, or has. Times are Unix seconds.

    `created_at` and `ended_at`, when it stopped to cost (None while nobody saw it gone), are by the cloud's
    clock. `noted_at` and `deadline` are by the ledger's. No time of one is compared with one of the other.
    `machine`: its facts, as the api wrote them. `armed`: a timer for its deadline was seen to run on it.
    `age`: seconds that it existed when it was noted; None where that is not known, and both clocks are taken
    for one. `by`: the client that noted it, in a ledger of a team.
    """

    lease: str
    machine: MachineFacts
    created_at: float
    noted_at: float
    deadline: float | None
    price: float
    ended_at: float | None = None
    disk_price: float = 0.0
    armed: bool = False
    age: float | None = None
    by: str = ""

    @property
    def id(self) -> str:
        return str(self.machine["id"])

    @property
    def usd_hour(self) -> float:
        """Of the machine and its disk."""
        return self.price + self.disk_price

    @property
    def begun_at(self) -> float:
        """When it was created, by the ledger's clock."""
        return self.created_at if self.age is None else self.noted_at - self.age

    def here(self, at: float) -> float:
        """A time of the cloud's clock by the ledger's."""
        return self.begun_at + at - self.created_at

    def seconds(self, now: float) -> float:
        """How long it ran. It ends itself at its deadline, whether somebody saw that or not."""
        end = now if self.ended_at is None else self.here(self.ended_at)
        end = end if self.deadline is None else min(end, self.deadline)
        return max(0.0, end - self.begun_at)

    def seen(self, age: float, now: float) -> Holding:
        """As its cloud tells at `now` that it is `age` seconds old."""
        moved = now - age - self.begun_at
        deadline = None if self.deadline is None else self.deadline + moved
        return replace(self, noted_at=now, age=age, deadline=deadline)
