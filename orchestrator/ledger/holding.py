"""One machine of a lease, and how long it ran, by two clocks that may both be wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.model import MachineFacts


@dataclass(frozen=True)
class Holding:
    """One machine that the lease has or had. Times are Unix seconds.

    `created_at` and `ended_at` are by the cloud's clock, `noted_at` and `deadline` by the ledger's; a time of
    one clock is never compared with a time of the other. `ended_at`: when the machine stopped costing; None
    until it was seen to be gone. `machine`: its facts, as its provider reported them. `armed`: a timer for
    its deadline was seen to run on it. `age`: seconds since its creation when it was noted; None if that is
    not known, and both clocks are then taken to agree. `by`: the client that noted it, in a team's ledger.
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
        """The price of the machine and its disk, in US dollars an hour."""
        return self.price + self.disk_price

    @property
    def begun_at(self) -> float:
        """When the machine was created, by the ledger's clock."""
        return self.created_at if self.age is None else self.noted_at - self.age

    def here(self, at: float) -> float:
        """Convert a time of the cloud's clock to the ledger's."""
        return self.begun_at + at - self.created_at

    def seconds(self, now: float) -> float:
        """Return how long the machine ran. It ends itself at its deadline, whether or not that was
        observed.
        """
        end = now if self.ended_at is None else self.here(self.ended_at)
        end = end if self.deadline is None else min(end, self.deadline)
        return max(0.0, end - self.begun_at)

    def seen(self, age: float, now: float) -> Holding:
        """Return the holding, corrected by the `age` in seconds that the cloud reports at `now`."""
        moved = now - age - self.begun_at
        deadline = None if self.deadline is None else self.deadline + moved
        return replace(self, noted_at=now, age=age, deadline=deadline)
