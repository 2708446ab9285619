"""An emulated cloud inside this process, for tests.

It behaves like a real cloud, but runs nothing: it lists new machines late, starts slowly, fails before or
after an operation took effect, has limits of capacity and quota, and ends machines at their deadlines; all by
a clock that tests can set.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import (
    Ending,
    Endpoint,
    ImageMarket,
    Labels,
    Machine,
    MachineImage,
    MachineSpec,
    MachineState,
    Need,
    Offer,
    Partial,
    machines,
)
from orchestrator.model.cloud_traits import CloudTraits
from orchestrator.model.counted import counted
from orchestrator.providers.beside import NothingBeside
from orchestrator.providers.groups import require_sound
from orchestrator.providers.memory_catalog import CATALOG as CATALOG
from orchestrator.providers.memory_catalog import serves
from orchestrator.providers.memory_facts import Group, host_key, identity_of, not_running, refused_region
from orchestrator.providers.memory_images import MemoryImages

R = TypeVar("R")

TRAITS = CloudTraits(
    name="memory",
    opener="orchestrator.providers.memory:open_memory",
    rented=False,
    images=ImageMarket(0.05, "r1"),
    close_types="small",
)

OPERATIONS = (
    *("offers", "create", "list", "find", "delete", "endpoint", "ending"),
    *("join", "separate", "prune", "require_reach", "vouch"),
    *("bake", "images", "delete_image"),
)


@dataclass(frozen=True)
class Temper:
    """The delays of this cloud in seconds: until a machine is listed, runs, and is gone, and until an image
    is available.
    """

    visible_after: float = 0.0
    running_after: float = 0.0
    gone_after: float = 0.0
    stored_after: float = 0.0


@dataclass(frozen=True)
class Mishap:
    """One planned failure. `after_effect`: the operation is carried out, but the caller gets an error."""

    fault: Fault
    code: str = "Scripted"
    after_effect: bool = False


@dataclass
class _Made:
    """One machine as the cloud stores it; times by the cloud's clock."""

    spec: MachineSpec
    machine: Machine
    made_at: float
    due: float
    ended_at: float | None = None
    stopped: bool = False


def open_memory(state: Path | None = None) -> MemoryProvider:  # noqa: ARG001 (it keeps nothing)
    return MemoryProvider()


class MemoryProvider(NothingBeside):
    """An emulated cloud. `clock` returns seconds since the epoch. Quota counts CPUs of machines that are not
    gone.
    """

    name = "memory"

    def __init__(
        self,
        *,
        temper: Temper = Temper(),
        clock: Callable[[], float] = time.time,
        catalog: Sequence[Offer] = CATALOG,
        quota_cpus: int | None = None,
    ) -> None:
        self.list_lag_s = temper.visible_after
        self._temper = temper
        self._clock = clock
        self._catalog = tuple(catalog)
        self._quota_cpus = quota_cpus
        self._sold_out: set[tuple[str, str]] = set()
        self._room: dict[str, int] = {}
        self._close: dict[str, int] = {}
        self._denied: set[str] = set()
        self._script: dict[str, deque[Mishap | None]] = {name: deque() for name in OPERATIONS}
        self._made: dict[str, _Made] = {}
        self.groups: dict[str, Group] = {}
        self._baked = MemoryImages(clock, temper.stored_after)
        self._stale_lists: list[bool] = []

    # ------------------------------------------------------------ the protocol

    def offers(self, need: Need) -> Sequence[Offer]:
        found = [offer for offer in self._catalog if serves(offer, need)]
        return self._answer("offers", lambda: sorted(found, key=lambda offer: offer.price))

    def create(self, spec: MachineSpec) -> Machine:
        return self._answer("create", lambda: self._create(spec))

    def list(self, labels: Labels) -> Sequence[Machine]:
        return self._answer("list", lambda: self._visible(labels))

    def find(self, machine: Machine) -> Machine | None:
        return self._answer("find", lambda: self._found(machine.id))

    def delete(self, machine: Machine) -> None:
        self._answer("delete", lambda: self._end_allowed(machine.id))

    def endpoint(self, machine: Machine) -> Endpoint | None:
        return self._answer("endpoint", lambda: self._endpoint(machine.id))

    def ending(self, machine: Machine) -> Ending | None:
        return self._answer("ending", lambda: self._ending(machine.id))

    def join(self, group: str, machines: Sequence[Machine], ports: range) -> Sequence[str]:
        require_sound(group, ports)
        return self._answer("join", lambda: self._join(group, [machine.id for machine in machines], ports))

    def separate(self, group: str) -> None:
        self._answer("separate", lambda: self._separate(group))

    def prune(self, *, dry_run: bool = False) -> Sequence[str]:
        return self._answer("prune", lambda: self._prune(dry_run))

    def bake(self, machine: Machine, name: str, labels: Labels) -> MachineImage:
        return self._answer("bake", lambda: self._bake(machine.id, name, labels))

    def images(self, labels: Labels) -> Sequence[MachineImage]:
        return self._answer("images", lambda: self._baked.having(labels))

    def delete_image(self, image: MachineImage) -> None:
        self._answer("delete_image", lambda: self._baked.delete(image.name))

    def require_reach(self, machine: Machine) -> None:  # noqa: ARG002 (all of it is in this process)
        self._answer("require_reach", lambda: None)

    def principal(self) -> str:
        return ""

    def vouch(self, machine: Machine, host_keys: Sequence[str]) -> None:  # noqa: ARG002
        self._answer("vouch", lambda: None)

    # ------------------------------------------------------------ what tests can do to it

    def fail_next(self, operation: str, *mishaps: Mishap | None) -> None:
        """Make the next calls of `operation` fail in this order; None lets one call succeed."""
        self._script[operation].extend(mishaps)

    def sell_out(self, instance_type: str, zone: str) -> None:
        """Make this type unavailable in this zone until restock()."""
        self._sold_out.add((instance_type, zone))

    def limit(self, zone: str, machines: int) -> None:
        """Limit the zone to this many machines, until restock()."""
        self._room[zone] = machines

    def crowd(self, zone: str, machines: int) -> None:
        """Let each placement group of the zone have room for this many machines, until restock()."""
        self._close[zone] = machines

    def restock(self) -> None:
        self._close.clear()
        self._room.clear()
        self._sold_out.clear()

    def deny(self, region: str) -> None:
        """Refuse `list`, `find` and `delete` in this region, as an organisation's policy does."""
        self._denied.add(region)

    def list_nothing(self, times: int, *, after: int = 0) -> None:
        """After `after` answers of `list`, return `times` empty ones, like a list that is out of date."""
        self._stale_lists = [False] * after + [True] * times

    def kill(self, machine: Machine) -> None:
        """End the machine without notice, as a preemption does."""
        self._end(machine.id)

    def reaches(self, machine: Machine, address: str, port: int) -> bool:
        """Whether the machine could connect to `address` and `port`."""
        return any(
            machine.id in group.addresses and address in group.addresses.values() and port in group.ports
            for group in self.groups.values()
        )

    def alive(self) -> Sequence[Machine]:
        """Return the machines that exist, whether listed already or not; tests compare them with what was
        reported.
        """
        self._enforce_deadlines()
        return [made.machine for made in self._made.values() if made.ended_at is None]

    # ------------------------------------------------------------ inside

    def _answer(self, operation: str, effect: Callable[[], R]) -> R:
        self._enforce_deadlines()
        script = self._script[operation]
        mishap = script.popleft() if script else None
        if mishap is None:
            return effect()
        if mishap.after_effect:
            effect()
        raise ProviderError(mishap.fault, f"{operation}: {mishap.fault} by script.", code=mishap.code)

    def _create(self, spec: MachineSpec) -> Machine:
        identity = identity_of(spec)
        made = self._made.get(identity)
        if made is not None and not self._gone(made):
            return self._as_seen(made)
        self._require_capacity(spec.offer)
        self._baked.require(spec.image)
        self._place(spec)
        now = self._clock()
        machine = Machine(
            provider=self.name,
            id=identity,
            name=f"{spec.id}-{spec.attempt}",
            state=MachineState.PENDING,
            labels=dict(spec.labels),
            instance_type=spec.offer.instance_type,
            zone=spec.offer.zone,
            price=spec.offer.price,
            created_at=datetime.fromtimestamp(now, UTC),
            deadline=spec.deadline,
            detail={"image": spec.image} if spec.image else {},
        )
        due = now + spec.seconds(machine.created_at)
        self._made[identity] = _Made(spec, machine, now, due)
        return self._as_seen(self._made[identity])

    def _bake(self, identity: str, name: str, labels: Labels) -> MachineImage:
        known = self._baked.known(name, labels)
        if known is not None:
            return known
        made = self._made.get(identity)
        if made is None or self._as_seen(made).state not in (MachineState.RUNNING, MachineState.STOPPED):
            raise not_running(identity)
        made.stopped = True
        return self._baked.add(name, labels, made.spec.disk)

    def _require_capacity(self, offer: Offer) -> None:
        if offer not in self._catalog:
            raise ProviderError(
                Fault.INVALID, f"There is no {offer.instance_type} in {offer.zone}.", code="NoSuchType"
            )
        active = [made.spec.offer.zone for made in self._made.values() if not self._gone(made)]
        there = active.count(offer.zone)
        is_full = there >= self._room.get(offer.zone, there + 1)
        if is_full or (offer.instance_type, offer.zone) in self._sold_out:
            message = f"{offer.zone} has no {offer.instance_type} left at the moment."
            raise ProviderError(Fault.CAPACITY, message, code="InsufficientCapacity")
        used = sum(made.spec.offer.cpus for made in self._made.values() if not self._gone(made))
        if self._quota_cpus is not None and used + offer.cpus > self._quota_cpus:
            message = (
                f"{used} of {counted(self._quota_cpus, 'CPU')} in use; {offer.cpus} more were asked for."
            )
            raise ProviderError(Fault.QUOTA, message, code="CpuQuota")

    def _place(self, spec: MachineSpec) -> None:
        if not spec.group:
            return
        self.groups.setdefault(spec.group, Group())
        zone, placed = spec.offer.zone, self._of_group(spec.group)
        there = sum(made.spec.offer.zone == zone for made in placed)
        if there >= self._close.get(zone, there + 1):
            raise ProviderError(Fault.CAPACITY, f"{zone} has no room for {spec.group}.", code="Crowded")

    def _of_group(self, group: str) -> Sequence[_Made]:
        """Return the machines that joined the group, or were placed in it, and are not gone."""
        there = ((identity, made) for identity, made in self._made.items() if not self._gone(made))
        joined = self.groups[group].addresses
        return [made for identity, made in there if identity in joined or made.spec.group == group]

    def _prune(self, dry_run: bool) -> Sequence[str]:
        left = [group for group in self.groups if not self._of_group(group)]
        for group in () if dry_run else left:
            del self.groups[group]
        return left

    def _visible(self, labels: Labels) -> Sequence[Machine]:
        if self._stale_lists and self._stale_lists.pop(0):
            return []
        seen = (
            made
            for made in self._made.values()
            if self._listed(made) and not self._gone(made) and made.spec.offer.region not in self._denied
        )
        machines: Iterable[Machine] = (self._as_seen(made) for made in seen)
        found = [machine for machine in machines if labels.items() <= machine.labels.items()]
        unseen = {region: refused_region(region) for region in sorted(self._denied)}
        return Partial.of(found, unseen) if unseen else found

    def _require_allowed(self, identity: str) -> None:
        made = self._made.get(identity)
        if made is not None and made.spec.offer.region in self._denied:
            raise refused_region(made.spec.offer.region)

    def _listed(self, made: _Made) -> bool:
        return self._clock() - made.made_at >= self._temper.visible_after

    def _gone(self, made: _Made) -> bool:
        return made.ended_at is not None and self._clock() - made.ended_at >= self._temper.gone_after

    def _as_seen(self, made: _Made) -> Machine:
        age = self._clock() - made.made_at
        if made.ended_at is not None:
            return replace(made.machine, state=MachineState.STOPPING, age=age, told=machines.since_start())
        if made.stopped:
            return replace(made.machine, state=MachineState.STOPPED, age=age, told=machines.since_start())
        runs = self._clock() - made.made_at >= self._temper.running_after
        state = MachineState.RUNNING if runs else MachineState.PENDING
        return replace(made.machine, state=state, age=age, told=machines.since_start())

    def _endpoint(self, identity: str) -> Endpoint | None:
        made = self._made.get(identity)
        if made is None or self._as_seen(made).state is not MachineState.RUNNING:
            return None
        number = list(self._made).index(identity) % 254 + 1
        return Endpoint(f"192.0.2.{number}", 22, "root", (host_key(identity),))

    def _found(self, identity: str) -> Machine | None:
        self._require_allowed(identity)
        made = self._made.get(identity)
        return self._as_seen(made) if made is not None and not self._gone(made) else None

    def _join(self, group: str, identities: Sequence[str], ports: range) -> Sequence[str]:
        for identity in identities:
            made = self._made.get(identity)
            if made is None or self._as_seen(made).state is not MachineState.RUNNING:
                raise not_running(identity)
        others = {one for name, other in self.groups.items() if name != group for one in other.addresses}
        if not others.isdisjoint(identities):
            raise ProviderError(Fault.CONFLICT, "A machine is in another group.", code="InAnotherGroup")
        self.groups[group] = Group({one: self._group_address(one) for one in identities}, ports)
        return list(self.groups[group].addresses.values())

    def _group_address(self, identity: str) -> str:
        return f"10.0.0.{list(self._made).index(identity) % 254 + 1}"

    def _separate(self, group: str) -> None:
        known = self.groups.get(group)
        members = [self._made[one] for one in known.addresses if one in self._made] if known else []
        if any(made.ended_at is not None and not self._gone(made) for made in members):
            raise ProviderError(Fault.TRANSIENT, f"Machines of {group} are ending.", code="InUse")
        self.groups.pop(group, None)

    def _ending(self, identity: str) -> Ending | None:
        made = self._made.get(identity)
        if made is None or made.ended_at is None:
            return None
        return Ending("it was ended.", at=made.ended_at)

    def _end_allowed(self, identity: str) -> None:
        self._require_allowed(identity)
        self._end(identity)

    def _end(self, identity: str) -> None:
        made = self._made.get(identity)
        if made is not None and made.ended_at is None:
            made.ended_at = self._clock()

    def _enforce_deadlines(self) -> None:
        now = self._clock()
        for made in self._made.values():
            if made.ended_at is None and now >= made.due:
                made.ended_at = made.due
