"""Machines, and the protocol of whoever sells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from .needs import Need, Offer

Labels = Mapping[str, str]

LABEL_LEASE = "orch-lease"
LABEL_OWNER = "orch-owner"
LABEL_ATTEMPT = "orch-attempt"
LABEL_EXPIRES = "orch-expires-at"
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


@dataclass(frozen=True)
class Machine:
    """What exists at a provider. A machine that is gone is not listed."""

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


class Provider(Protocol):
    """Sells machines; knows no jobs. Raises ProviderError and nothing else."""

    name: str

    def offers(self, need: Need) -> Sequence[Offer]:
        """What could serve `need`, cheapest first. Reads only."""

    def create(self, spec: MachineSpec) -> Machine:
        """The machine of `spec.id` and `spec.attempt`, made now or found. Returns when accepted."""

    def list(self, labels: Labels) -> Sequence[Machine]:
        """Every machine that carries all of `labels`, in any state but gone: the witness of deletion."""

    def delete(self, machine: Machine) -> None:
        """End it, with its disk. Absent already is success. Returns when accepted: poll `list`."""

    def endpoint(self, machine: Machine) -> Endpoint | None:
        """Address and host keys, by a channel that an attacker does not own; None while it has none yet."""
