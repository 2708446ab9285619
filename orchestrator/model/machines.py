"""Machines, and the protocol of whoever sells them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Protocol

from orchestrator.errors import Fault, ProviderError

from .disks import AS_MADE, Volume
from .needs import Need, Offer

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

Labels = Mapping[str, str]

LABEL_LEASE = "orch-lease"
LABEL_OWNER = "orch-owner"
LABEL_ATTEMPT = "orch-attempt"
LABEL_EXPIRES = "orch-expires-at"
LABEL_LASTS = "orch-lasts"
"""Seconds from a machine's creation, which its provider tells, to its deadline."""
LABEL_SPEC = "orch-spec"


class MachineState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"  # exists and may cost, but runs nothing; only `delete` ends it


@dataclass(frozen=True)
class MachineSpec:
    """One machine, whole: everything that the single create call needs.

    The same `id` and `attempt` always name the same machine: creating it twice yields it once.
    `user_data` is a `#!` script that the machine runs as root at first boot, before it is
    reachable; it holds no secret. `ssh_public_key` is one OpenSSH line, allowed for `user`.
    `lasts`: seconds from its start to its end, counted there; `deadline` is the same by the clock of
    whoever asks, which may be wrong, for people to read. Without `lasts`, what is left until `deadline`.
    `reservation`, `identity`: as Need has them. `own_labels`: the user's,
    for the bill; nothing is found by them.
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

    def seconds(self, now: datetime) -> float:
        """How long it is to last, by a machine that is created at `now` of the same clock as `deadline`."""
        return (self.deadline - now).total_seconds() if self.lasts is None else self.lasts


def since_start() -> float:
    """Seconds since the start of this computer, with those that it slept where the system counts them."""
    return time.clock_gettime(_BOOTTIME)


@dataclass(frozen=True)
class Machine:
    """What exists at a provider. A machine that is gone is not listed.

    `age`: seconds since `created_at` by the same clock, when the provider answered, at `told` seconds since
    the start of this computer; None where it tells no time, or was not asked for a list.
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
        """Its age now, however long ago the provider answered."""
        return None if self.age is None else self.age + since_start() - self.told


class Partial(tuple[Machine, ...]):
    """The machines of the regions that answered. `unseen`: how each of the others refused, by its name.

    It proves nothing about a region that is unseen.
    """

    unseen: Mapping[str, ProviderError]

    @classmethod
    def of(cls, machines: Iterable[Machine], unseen: Mapping[str, ProviderError]) -> Partial:
        made = cls(machines)
        made.unseen = unseen
        return made


def unseen_in(listed: Sequence[Machine]) -> Mapping[str, ProviderError]:
    """The regions that an answer of Provider.list lacks, each with its refusal."""
    return listed.unseen if isinstance(listed, Partial) else {}


@dataclass(frozen=True)
class Endpoint:
    """Where a machine answers, and the host keys by which it proves itself (OpenSSH lines: "type base64").

    `proxy`: the command whose standard streams lead to the machine's ssh server, where `address` does not.
    """

    address: str
    port: int
    user: str
    host_keys: tuple[str, ...]
    proxy: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotYet:
    """A machine that runs and cannot be logged in to yet. False, like None.

    `awaited`: what is missing, as a noun: "its ssh server".
    """

    awaited: str

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class Ending:
    """How a machine ended, as reported by its cloud.

    `message` is a sentence. `fault` is the one with which the create call would have been refused, had the
    cloud known then: CAPACITY where it could not give the machine or took it back; None where nobody
    refused anything, as when the machine powered itself off. `preempted`: a spot machine that was taken back.
    `at`: when it stopped, in Unix seconds by the cloud's clock; None where the cloud does not tell.
    """

    message: str
    fault: Fault | None = None
    code: str = ""
    preempted: bool = False
    next_command: str | None = None
    at: float | None = None


class Provider(Protocol):
    """Sells machines; knows no jobs. Raises ProviderError and nothing else."""

    name: str
    list_lag_s: float
    """How long `list` may miss a machine whose create call was carried out, in seconds."""

    def offers(self, need: Need) -> Sequence[Offer]:
        """What could serve `need`, cheapest first. Reads only."""

    def create(self, spec: MachineSpec) -> Machine:
        """The machine of `spec.id` and `spec.attempt`, made now or found. Returns when accepted."""

    def list(self, labels: Labels) -> Sequence[Machine]:
        """Every machine that carries all of `labels`, in any state but gone, with its age where it is known.

        May lag behind: what was made a moment ago can be missing, and an empty answer proves nothing.
        `Partial` where regions refuse these credentials and others answer; raises where all refuse.
        """

    def find(self, machine: Machine) -> Machine | None:
        """The machine as it is now, asked for by its id; None once it is gone: the witness of deletion.

        Does not lag behind a `create` that returned. Raises TRANSIENT where the cloud cannot know yet.
        """

    def delete(self, machine: Machine) -> None:
        """End it, with its disk. Absent already is success. Returns when accepted: poll `find`."""

    def guard(self, machine: Machine, lasts: float) -> Machine:
        """Have the cloud end it where its guest cannot, from `lasts` seconds on; may be repeated.

        `create` does that. A machine whose `create` was cut short is guarded when it is found. Its `detail`
        tells what was refused, which fails nothing.
        """

    def forget(self, machine: Machine) -> None:
        """Remove what was made beside a machine that is proven gone. What stays behind fails nothing."""

    def endpoint(self, machine: Machine) -> Endpoint | NotYet | None:
        """Address and host keys, by a channel that an attacker does not own.

        NotYet where the machine runs and the provider knows what is missing; else None.
        """

    def ending(self, machine: Machine) -> Ending | None:
        """Tell how a machine ended; None if it exists, or the provider does not know."""

    def require_reach(self, machine: Machine) -> None:
        """Raise INVALID, with what to export, where the environment hides the part of the cloud it is in."""

    def principal(self) -> str:
        """The account of the credentials, as the cloud names it; "" if there are none or it cannot be read.

        The same for the same credentials, always; another for other ones. Never raises.
        """

    def vouch(self, machine: Machine, host_keys: Sequence[str]) -> None:
        """Record `host_keys` as the proof of a machine whose `detail["host_key"]` is "injected".

        Its first key may have been read by others on its way. While one key replaces another, the new
        one comes first. Raises INVALID where the provider's machines make their keys themselves.
        """
