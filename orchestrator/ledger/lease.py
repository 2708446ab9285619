"""One lease with its machines and runs, as the events of its ledger add up."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.ledger import clock
from orchestrator.ledger.draft import Draft
from orchestrator.ledger.events import ImageMade, LeftBehind, Ran
from orchestrator.ledger.holding import Holding
from orchestrator.model import MachineFacts, StackFacts


@dataclass(frozen=True)
class Resumed:
    """The checkpoint from which an attempt continues: copy `seq` of an earlier attempt, made at
    `taken_at`.
    """

    attempt: int
    seq: int
    taken_at: float


@dataclass(frozen=True)
class LeasedRun:
    """A run as the ledger knows it. `exit_reason` is None until it was seen to end.

    `lost`: why its results can never be fetched, if they went with its machine. `released`: its machine was
    told that the results were fetched. `left`: files that stayed on the machine. `draft`: what was known of
    it when it started. `found`: the machine reported this run, whose start cannot be read in the ledger. In a
    team's ledger `by` is the client that started it, and `home` the client that has its results. `queued`: it
    was put into its machine's queue, where it was seen to have `began`. `discarded`: the machine that had its
    results when the lease was closed without them.
    """

    run_id: str
    started_at: float
    collected: bool = False
    exit_reason: str | None = None
    lost: str | None = None
    released: bool = False
    left: tuple[LeftBehind, ...] = ()
    draft: Draft = field(default_factory=Draft)
    found: bool = False
    resumed: Resumed | None = None
    by: str = ""
    home: str = ""
    queued: bool = False
    began: bool = False
    discarded: str = ""

    @property
    def gone(self) -> str | None:
        """Why its results are on no machine any more, as a sentence; None unless they are gone."""
        if self.lost is not None or self.collected or not self.discarded:
            return self.lost
        store = f" Its store may have them: orch pull {self.run_id} --store {self.draft.store}"
        return f"Its results were discarded with {self.discarded}.{store if self.draft.store else ''}"

    @property
    def waits(self) -> bool:
        """Whether it is in its machine's queue, as far as it was seen."""
        return self.queued and not self.began and self.exit_reason is None

    @property
    def untold(self) -> bool:
        """Whether its machine must still be told that the results were fetched, so that it may count as
        idle.
        """
        return self.collected and not self.released and not any(each.can_come for each in self.left)

    @property
    def attempt(self) -> int:
        """Which attempt at its run id this is, from 1."""
        return self.draft.attempt.number

    @property
    def inherited(self) -> dict[str, str]:
        """The variables that it inherited from the user's shell."""
        return dict((self.draft.stack or {}).get("inherited") or {})


@dataclass(frozen=True)
class Attempt:
    """One create call.

    `outcome`: intended (the machine may exist), accepted, or the fault with which it was refused.
    `undecided`: it was refused after it may have taken effect. `group`: as in MachineSpec.
    """

    number: int
    instance_type: str
    zone: str
    price: float
    deadline: float
    outcome: str = "intended"
    message: str = ""
    lasts: float | None = None
    undecided: bool = False
    group: str = ""

    @property
    def settled(self) -> bool:
        """Whether the result is known; if not, the machine may have been created."""
        return not self.undecided and self.outcome not in ("intended", "transient", "unknown")

    @property
    def refused(self) -> bool:
        """Whether it is known that no machine was created."""
        return self.settled and self.outcome != "accepted"


@dataclass(frozen=True)
class Lease:
    """One lease, from `up` to `down`, as its events add up. `whole`: every line of its ledger could be read.

    `for_run`: the run for which `orch run` opened the lease, which it closes again; None for `orch up`.
    `started`: see ledger.clock.now. `owner`: the client that opened it, in a team's ledger. `problem`: why
    the store of its ledger could not be read; the other fields are then as they were last read. `gang`: the
    lease of the first machine, if this lease has another one of several that train one model; `rank`: its
    number among them, from 0. `joined`: a network between them or a placement group may exist. `baking`: the
    name of the image for which its machine was prepared, "" for none; `image`: the image that was made of it
    and not deleted since.
    """

    id: str
    opened_at: float
    profile: Mapping[str, Any]
    for_run: str | None = None
    spec_id: str = ""
    attempts: tuple[Attempt, ...] = ()
    attempted_at: float | None = None
    machine: MachineFacts | None = None
    created_at: float | None = None
    deadline: float | None = None
    price: float = 0.0
    holdings: tuple[Holding, ...] = ()
    agent: Mapping[str, str] | None = None
    stack: StackFacts | None = None
    runs: Mapping[str, LeasedRun] = field(default_factory=dict)
    ran: tuple[Ran, ...] = ()
    closed_at: float | None = None
    whole: bool = True
    started: Mapping[str, float] = field(default_factory=dict)
    owner: str = ""
    problem: str = ""
    gang: str = ""
    rank: int = 0
    joined: bool = False
    baking: str = ""
    image: ImageMade | None = None

    def now(self) -> float:
        """Return Unix seconds by the clock of this ledger."""
        return clock.now(self.started)

    def seen(self, machine: str, age: float | None) -> Lease:
        """Return the lease, corrected by the machine's age in seconds as the cloud reports it now."""
        if age is None:
            return self
        now = self.now()
        holdings = tuple(h.seen(age, now) if h.id == machine else h for h in self.holdings)
        changed = replace(self, holdings=holdings)
        return replace(changed, deadline=changed.holding.deadline) if changed.holding else changed

    @property
    def flaw(self) -> str:
        """What is wrong with a ledger that is not whole, as the end of a sentence."""
        return f"cannot be read ({self.problem.rstrip('.')})" if self.problem else "is damaged"

    @property
    def up_command(self) -> str:
        """The `orch up` that leases this machine, with the overrides that were typed. Values that are stored
        nowhere are "…".
        """
        sets = [f"--set {shlex.quote(each)}" for each in self.profile.get("overrides", ())]
        hidden = [f"--set {key}=…" for key in self.profile.get("withheld", ())]
        return " ".join(("orch up", shlex.quote(str(self.profile["path"])), *sets, *hidden))

    @property
    def open(self) -> bool:
        return self.closed_at is None

    @property
    def uncollected(self) -> tuple[LeasedRun, ...]:
        """The runs whose results are on the machine only. Lost runs are not among them."""
        return tuple(run for run in self.runs.values() if not run.collected and run.lost is None)

    @property
    def active(self) -> tuple[str, ...]:
        """The ids of runs that were not seen to end."""
        return tuple(run.run_id for run in self.uncollected if run.exit_reason is None)

    @property
    def untold(self) -> tuple[LeasedRun, ...]:
        """The fetched runs whose machine must still be told that they were fetched."""
        return tuple(run for run in self.runs.values() if run.untold)

    @property
    def holding(self) -> Holding | None:
        """The machine that is in use, or was last; None if none was accepted."""
        known = (self.machine or {}).get("id")
        return next((holding for holding in self.holdings if holding.id == known), None)

    def cost(self, now: float) -> float:
        """Return the cost so far in US dollars, of every machine of the lease, at the recorded prices, by
        the second.
        """
        until = self.closed_at or now
        return sum(holding.seconds(until) / 3600 * holding.usd_hour for holding in self.holdings)

    def seconds(self, now: float) -> float:
        """Return how long machines ran, in total, each from its creation to its end."""
        return sum(holding.seconds(self.closed_at or now) for holding in self.holdings)
