"""Machines, and the protocol of a provider that sells them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Protocol

from orchestrator.errors import Fault, ProviderError

from .disks import AS_MADE, Volume
from .images import MachineImage
from .needs import Need, Offer

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

Labels = Mapping[str, str]

LABEL_LEASE = "orch-lease"
LABEL_OWNER = "orch-owner"
LABEL_ATTEMPT = "orch-attempt"
LABEL_EXPIRES = "orch-expires-at"
LABEL_LASTS = "orch-lasts"
"""Seconds from a machine's creation, which its provider reports, to its deadline."""
LABEL_SPEC = "orch-spec"


class MachineState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"  # exists and may cost, but runs nothing; only `delete` ends it


@dataclass(frozen=True)
class MachineSpec:
    """One machine: everything that the single create call needs.

    The same `id` and `attempt` always name the same machine: creating it twice yields it once. `user_data` is
    a `#!` script that the machine runs as root at first boot, before it is reachable; it holds no secret.
    `ssh_public_key` is one OpenSSH line, allowed for `user`. `lasts`: seconds from the machine's start to its
    end, counted on the machine. `deadline` is the same moment by the clock of this computer, which may be
    wrong; it is for people to read. Without `lasts`, the machine lasts until `deadline`. `group`: the
    placement group whose machines are close to each other; "" for none.
    """

    id: str
    attempt: int
    offer: Offer
    disk: int
    deadline: datetime
    labels: Labels
    ssh_public_key: str
    user_data: str = ""
    image: str | None = None
    lasts: float | None = None
    volume: Volume = AS_MADE
    reservation: str | None = None
    identity: str | None = None
    own_labels: Labels = field(default_factory=dict)
    group: str = ""

    def seconds(self, now: datetime) -> float:
        """Return how many seconds the machine is to last if it is created at `now`, by the clock of
        `deadline`.
        """
        return (self.deadline - now).total_seconds() if self.lasts is None else self.lasts


def since_start() -> float:
    """Return the seconds since this computer booted, including time asleep if the system counts it."""
    return time.clock_gettime(_BOOTTIME)


@dataclass(frozen=True)
class Machine:
    """What exists at a provider. A machine that is gone is not listed.

    `age`: seconds since `created_at`, by the provider's clock, when the provider answered; None if it does
    not tell its time, or was not asked for a list. `told`: when it answered, in seconds since this computer
    booted.
    """

    provider: str
    id: str
    name: str
    state: MachineState
    labels: Labels
    instance_type: str
    zone: str
    price: float
    created_at: datetime
    deadline: datetime | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    age: float | None = field(default=None, compare=False)
    told: float = field(default_factory=lambda: since_start(), compare=False, repr=False)

    @property
    def age_now(self) -> float | None:
        """The machine's age in seconds now, however long ago the provider answered."""
        return None if self.age is None else self.age + since_start() - self.told


class Partial(tuple[Machine, ...]):
    """The machines of the regions that answered. `unseen`: the refusal of each other region, by its name.

    It proves nothing about those other regions.
    """

    unseen: Mapping[str, ProviderError]

    @classmethod
    def of(cls, machines: Iterable[Machine], unseen: Mapping[str, ProviderError]) -> Partial:
        made = cls(machines)
        made.unseen = unseen
        return made


def unseen_in(listed: Sequence[Machine]) -> Mapping[str, ProviderError]:
    """Return the regions that are missing in an answer of Provider.list, each with its refusal."""
    return listed.unseen if isinstance(listed, Partial) else {}


@dataclass(frozen=True)
class Endpoint:
    """Where a machine answers, and the host keys by which it proves itself (OpenSSH lines: "type base64").

    `proxy`: a command whose standard streams lead to the machine's ssh server, if `address` does not.
    """

    address: str
    port: int
    user: str
    host_keys: tuple[str, ...]
    proxy: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotYet:
    """The machine runs, but a login is not possible yet. False, like None.

    `awaited`: what is missing, as a noun: "its ssh server".
    """

    awaited: str

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class Ending:
    """How a machine ended, as reported by its cloud.

    `message` is a sentence. `fault` is the fault with which the create call would have been refused, had the
    cloud known then: CAPACITY if the cloud could not provide the machine or took it back; None if nothing was
    refused, as when the machine powered itself off. `preempted`: a spot machine that was taken back. `at`:
    when it stopped, in Unix seconds by the cloud's clock; None if the cloud does not tell.
    """

    message: str
    fault: Fault | None = None
    code: str = ""
    preempted: bool = False
    next_command: str | None = None
    at: float | None = None


class Provider(Protocol):
    """Create, list and delete machines; a provider knows nothing of jobs. Raises only ProviderError."""

    name: str
    list_lag_s: float
    """How many seconds `list` may miss a machine after its create call was carried out."""

    def offers(self, need: Need) -> Sequence[Offer]:
        """Return the offers that satisfy `need`, cheapest first. Reads only."""

    def create(self, spec: MachineSpec) -> Machine:
        """Create the machine of `spec.id` and `spec.attempt`, or find it if it exists. Returns when
        accepted.

        With `spec.group`, it is created in a placement group, which is made if it is missing. A refusal may
        then concern the group only: the same machine without it may be available. Ignore `group` if the cloud
        has no placement groups.
        """

    def list(self, labels: Labels) -> Sequence[Machine]:
        """Return every machine that has all of `labels`, in any state but gone, with its age if it is known.

        The list may lag: a machine that was created a moment ago can be missing, so an empty answer proves
        nothing. Return `Partial` if some regions refuse these credentials; raise if all do.
        """

    def find(self, machine: Machine) -> Machine | None:
        """Return the current state of one machine, looked up by id; None once it is gone, which proves its
        deletion.

        Does not lag behind a `create` that returned. Raise TRANSIENT if the cloud cannot know yet.
        """

    def delete(self, machine: Machine) -> None:
        """End the machine, with its disk. A machine that is already gone is a success. Returns when
        accepted: poll `find`.
        """

    def guard(self, machine: Machine, lasts: float) -> Machine:
        """Have the cloud end the machine `lasts` seconds from now, even if its guest does not. May be
        repeated.

        `create` does this itself. A machine whose `create` was interrupted is guarded when it is found. If
        the cloud refuses, that is not an error: the refusal is in `detail` of the machine.
        """

    def forget(self, machine: Machine) -> None:
        """Remove what was created beside a machine that is proven gone. What cannot be removed is not an
        error.
        """

    def endpoint(self, machine: Machine) -> Endpoint | NotYet | None:
        """Return address and host keys, obtained by a channel that an attacker on the network does not
        control.

        NotYet if the machine runs and the provider knows what is missing; else None.
        """

    def ending(self, machine: Machine) -> Ending | None:
        """Return how a machine ended; None if it exists, or the provider does not know."""

    def join(self, group: str, machines: Sequence[Machine], ports: range) -> Sequence[str]:
        """Let these machines, and no others, reach each other at TCP `ports`; return the address of each for
        the others, in the order of `machines`.

        May be repeated, also after a machine of the group was replaced by another one: connections of the
        machines that stay are kept. A machine is in one group at most. Machines that share one address
        (127.0.0.1) need different ports. Raise INVALID if a machine does not run or the cloud cannot connect
        them, and CONFLICT if another group has one of them.
        """

    def separate(self, group: str) -> None:
        """Remove what `join` and `create` made for the group; nothing there is a success. Its machines are
        gone, or only lose the way to each other.

        Raise TRANSIENT while the cloud still needs it for machines that are ending.
        """

    def prune(self, *, dry_run: bool = False) -> Sequence[str]:
        """Remove what `join` and `create` made for groups in which no machine is any more; return their
        names. With `dry_run`, remove nothing.

        Whose they are does not matter: they cost nothing, and a call that needs one makes it again. One that
        a machine enters meanwhile is left.
        """

    def bake(self, machine: Machine, name: str, labels: Labels) -> MachineImage:
        """Make an image of the machine's disk with this name (model.images.NAME), or find the one that
        exists.

        The machine is stopped first, and runs nothing afterwards: delete it once `images` lists the image as
        AVAILABLE. Returns when accepted. May be repeated, also after the machine is gone. Raise INVALID if
        there is neither the image nor a machine that can be stopped, or the cloud has no images; CONFLICT if
        an image with other labels has the name.
        """

    def images(self, labels: Labels) -> Sequence[MachineImage]:
        """Return every image made by `bake` that has all of `labels`, in any state, and what is left of one
        whose deletion was interrupted. The list may lag as `list` does.
        """

    def delete_image(self, image: MachineImage) -> None:
        """Delete the image and everything that is stored for it. One that is gone is a success.

        Raise BUSY while machines that exist need it.
        """

    def require_reach(self, machine: Machine) -> None:
        """Raise INVALID, with what to export, if the environment hides the part of the cloud that has the
        machine.
        """

    def principal(self) -> str:
        """Return the account of the credentials, as the cloud names it; "" if there are none or it cannot be
        read.

        The same credentials always give the same account, other credentials another one. Never raises.
        """

    def vouch(self, machine: Machine, host_keys: Sequence[str]) -> None:
        """Record `host_keys` as the host keys of a machine whose `detail["host_key"]` is "injected".

        Others may have read its first key on the way. While one key replaces another, the new one comes
        first. Raise INVALID if the provider's machines generate their own keys.
        """
