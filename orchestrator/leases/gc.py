"""gc: delete orch machines that are past their deadline.

A machine ends itself at its deadline. One that still exists a while later failed to do so; this is the second
line of defence, to be run on a schedule. It goes by labels and needs no ledger or folder. A ledger that is
available protects its machine while results are on that machine only, as with `down`.

What connected or placed several machines, of which none exists any more, costs nothing and is removed.

The age of a machine is measured by its provider's clock, because this computer's clock may be wrong. A
machine of unknown age is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from orchestrator.errors import ProviderError
from orchestrator.leases.down_all import leases_at_hand
from orchestrator.model import (
    LABEL_EXPIRES,
    LABEL_LASTS,
    LABEL_LEASE,
    LABEL_OWNER,
    Machine,
    MachineState,
    Progress,
    Provider,
    clouds,
    unseen_in,
)
from orchestrator.model.progress import as_progress
from orchestrator.providers import open_provider
from orchestrator.session.owner import is_mine
from orchestrator.session.project import Project

MARGIN = timedelta(minutes=10)
"""Seconds after its deadline in which a machine may still be ending by itself."""

_POLL_S = 1.0
_GONE_LIMIT_S = 300.0

Open = Callable[[str], Provider]


@dataclass(frozen=True)
class Found:
    """One orch machine: its outcome and the reason.

    `outcome`: ended (and confirmed gone), due (left by a dry run), left (not ours to delete), kept (due, but
    results are on it only), unproven (due, and may still exist). `since`: US dollars that it cost since its
    deadline.
    """

    cloud: str
    id: str
    name: str
    instance_type: str
    zone: str
    lease: str
    owner: str
    price: float
    expires_at: datetime | None
    outcome: str
    reason: str
    since: float = 0.0


@dataclass(frozen=True)
class LeftGroup:
    """The network or placement group of several machines that are gone. `group`: their first lease."""

    cloud: str
    group: str


@dataclass(frozen=True)
class GcReport:
    """The result of one sweep.

    `unseen`: clouds that did not answer, and regions of others as "cloud region", with their errors.
    `groups`: what was removed, or left by a dry run. They cost nothing, so they prove nothing.
    """

    clouds: tuple[str, ...]
    machines: tuple[Found, ...]
    unseen: Mapping[str, str]
    dry_run: bool = False
    groups: tuple[LeftGroup, ...] = ()

    @property
    def proven(self) -> bool:
        """Every cloud answered, and nothing that was due may still exist."""
        return not self.unseen and not self.of("unproven") and not self.of("kept")

    def of(self, outcome: str) -> tuple[Found, ...]:
        return tuple(one for one in self.machines if one.outcome == outcome)

    def as_json(self) -> dict[str, Any]:
        machines = [{**asdict(one), "expires_at": _iso(one.expires_at)} for one in self.machines]
        return {
            "clouds": list(self.clouds),
            "machines": machines,
            "groups": [asdict(one) for one in self.groups],
            "unseen": dict(self.unseen),
            "dry_run": self.dry_run,
            "proven": self.proven,
            "price_left_usd_hour": sum(one.price for one in self.machines if one.outcome != "ended"),
        }


def clouds_of(folder: Path | str | None = None) -> tuple[str, ...]:
    """This computer, and every cloud on which this folder ever had a lease."""
    return tuple(sorted({clouds.LOCAL, *(lease.profile["cloud"] for lease in Project.at(folder).leases())}))


def gc(
    clouds: Sequence[str],
    *,
    dry_run: bool = False,
    others: bool = False,
    discard: bool = False,
    folder: Path | str | None = None,
    now: datetime | None = None,
    opened: Open = open_provider,
    progress: Progress | Callable[[str], None] | None = None,
) -> GcReport:
    """Delete this user's machines on `clouds` whose deadline passed MARGIN ago, and confirm that they are
    gone.

    With `others`, those of other owners too. A machine whose ledger is in `folder`, or in another folder that
    this user leased from, is kept while that ledger has runs that were not pulled, unless `discard`. `now`:
    the time to compare with; by default each machine's own, from its creation and age as its provider reports
    them. Safe to repeat and to run concurrently. One cloud or machine that refuses does not stop the others:
    see `proven`. Raises ProviderError if the only cloud that was asked does not answer.
    """
    tell = as_progress(progress)
    unpulled = {} if discard else _unpulled(Project.at(folder))
    machines: list[Found] = []
    groups: list[LeftGroup] = []
    unseen: dict[str, str] = {}
    for cloud in dict.fromkeys(clouds):
        try:
            sweep = _Sweep(opened(cloud), now, dry_run, others, unpulled)
            found, refused = sweep.report(tell)
            machines += found
            groups += sweep.pruned(tell)
            unseen |= {f"{cloud} {region}": why for region, why in refused.items()}
        except ProviderError as error:
            if len(set(clouds)) == 1:
                error.exists = (
                    error.exists or "Machines past their deadline may be running there and cost money."
                )
                error.next_command = error.next_command or f"orch gc --cloud {cloud}"
                raise
            unseen[cloud] = error.message
    return GcReport(tuple(dict.fromkeys(clouds)), tuple(machines), unseen, dry_run, tuple(groups))


def now_of(machine: Machine) -> datetime | None:
    """The time by the clock of the machine's provider when it was listed; None if unknown."""
    return None if machine.age is None else machine.created_at + timedelta(seconds=machine.age)


def due(machine: Machine, now: datetime | None) -> tuple[bool, str]:
    """Return whether a machine is to be deleted, and why. Pure.

    `now`: by the clock that reported its creation; None if that clock is not known.
    """
    if LABEL_LEASE not in machine.labels:
        return False, f"it has no label {LABEL_LEASE}, so it is not orch's"
    expires = expiry(machine)
    if expires is None:
        return False, f"its label {LABEL_EXPIRES} is not a time"
    if now is None:
        return (
            False,
            "its age is not known: its provider reported no time, and this computer's clock may be wrong",
        )
    late = now - expires
    by = "" if _digits(machine, LABEL_LASTS) is not None else "by the clock of its creator, "
    if late < timedelta(0):
        return False, f"{by}its deadline is in {_span(-late)}"
    if late < MARGIN:
        return False, f"{by}its deadline passed {_span(late)} ago; it may be ending by itself"
    return True, f"{by}its deadline passed {_span(late)} ago"


def expiry(machine: Machine) -> datetime | None:
    """The deadline: the lifetime in its label after its creation by its provider's clock; without that label,
    the time in its other label. None without either.
    """
    lasts, text = _digits(machine, LABEL_LASTS), _digits(machine, LABEL_EXPIRES)
    try:
        if lasts is not None:
            return machine.created_at + timedelta(seconds=lasts)
        return None if text is None else datetime.fromtimestamp(text, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def _digits(machine: Machine, label: str) -> int | None:
    text = machine.labels.get(label, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _unpulled(project: Project) -> dict[str, str]:
    """Runs that were not pulled, by lease, for available ledgers: which, and how to pull them."""
    found = {}
    for folder, lease in leases_at_hand(project):
        if not lease.whole and not lease.uncollected:
            found[lease.id] = (
                f"its ledger is damaged, so results may be on it only. Next, in {folder.root}: orch down; "
                "or, to lose what is there: orch gc --discard"
            )
        if lease.uncollected:
            ids = ", ".join(run.run_id for run in lease.uncollected)
            first = lease.uncollected[0].run_id
            found[lease.id] = (
                f"results of {ids} are on it only. Next, in {folder.root}: orch pull {first}; "
                "or, to lose them: orch gc --discard"
            )
    return found


def _stopped(machine: Machine) -> str:
    """A note that a stopped machine is left, with its cost if the provider reports that."""
    if machine.state is not MachineState.STOPPED:
        return ""
    return f". {machine.detail.get('stopped') or 'It runs nothing, and may still cost: orch down'}"


# ---------------------------------------------------------------- one cloud


@dataclass(frozen=True)
class _Sweep:
    """One cloud: what may be deleted there, and why the rest may not."""

    provider: Provider
    now: datetime | None
    dry_run: bool
    others: bool
    unpulled: Mapping[str, str]

    def report(self, tell: Progress) -> tuple[list[Found], dict[str, str]]:
        """What was found, and the regions that refused, with their errors."""
        seen = self.provider.list({})
        judged = [(machine, *self._judged(machine)) for machine in seen]
        late = [machine for machine, outcome, _ in judged if outcome == "ended"]
        refused = _ended(self.provider, late, tell)
        left = _left(self.provider, late, refused)
        for machine in late:
            if machine.id not in refused and machine.id not in left:
                self.provider.forget(machine)
        unseen = {region: error.message for region, error in unseen_in(seen).items()}
        return [_found(*one, self._now(one[0]), refused, left) for one in judged], unseen

    def pruned(self, tell: Progress) -> list[LeftGroup]:
        """Remove what is left of groups without a machine. A refusal is only told: they cost nothing."""
        try:
            groups = self.provider.prune(dry_run=self.dry_run)
        except ProviderError as error:
            tell.say(f"What is left of the networks of several machines was not removed: {error.message}")
            return []
        return [LeftGroup(self.provider.name, group) for group in groups]

    def _now(self, machine: Machine) -> datetime | None:
        return self.now or now_of(machine)

    def _judged(self, machine: Machine) -> tuple[str, str]:
        """The outcome of a machine, and why."""
        is_due, reason = due(machine, self._now(machine))
        if not is_due:
            return "left", f"{reason}{_stopped(machine)}"
        if not self.others and not is_mine(self.provider, machine):
            return "left", f"{reason}, but it has another owner: orch gc --others deletes it"
        if _lease(machine) in self.unpulled:
            return "kept", f"{reason}, and {self.unpulled[_lease(machine)]}"
        return ("due" if self.dry_run else "ended"), reason


def _ended(provider: Provider, late: Iterable[Machine], tell: Progress) -> dict[str, str]:
    """Request the deletion of each; returns the refusals by machine id."""
    refused = {}
    for machine in late:
        tell.say(f"Deleting {machine.id}: {_lease(machine)} should have ended at {_iso(expiry(machine))}")
        try:
            provider.delete(machine)
        except ProviderError as error:
            refused[machine.id] = error.message
    return refused


def _left(provider: Provider, late: Sequence[Machine], refused: Mapping[str, str]) -> set[str]:
    """The machines that still exist after the time limit, each queried by id."""
    awaited = [machine for machine in late if machine.id not in refused]
    limit = time.monotonic() + _GONE_LIMIT_S
    while awaited:
        try:
            awaited = [machine for machine in awaited if provider.find(machine) is not None]
        except ProviderError:
            break  # not confirmed gone
        if time.monotonic() >= limit:
            break
        time.sleep(_POLL_S if awaited else 0)
    return {machine.id for machine in awaited}


def _found(
    machine: Machine,
    outcome: str,
    reason: str,
    now: datetime | None,
    refused: Mapping[str, str],
    left: set[str],
) -> Found:
    if machine.id in refused:
        outcome, reason = "unproven", f"{reason}, and its deletion was refused: {refused[machine.id]}"
    elif machine.id in left:
        outcome, reason = "unproven", f"{reason}, and it is still listed long after its deletion was accepted"
    expires = expiry(machine)
    return Found(
        cloud=machine.provider,
        id=machine.id,
        name=machine.name,
        instance_type=machine.instance_type,
        zone=machine.zone,
        lease=_lease(machine),
        owner=machine.labels.get(LABEL_OWNER, ""),
        price=machine.price,
        expires_at=expires,
        outcome=outcome,
        reason=reason,
        since=max(0.0, (now - expires).total_seconds()) / 3600 * machine.price if expires and now else 0.0,
    )


def _lease(machine: Machine) -> str:
    return machine.labels.get(LABEL_LEASE, "")


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat().replace("+00:00", "Z") if moment else None


def _span(span: timedelta) -> str:
    minutes = int(span.total_seconds()) // 60
    if minutes < 1:
        return f"{int(span.total_seconds())} s"
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 2880 else f"{minutes // 1440} days"
