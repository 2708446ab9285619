"""Groups, ids, keys and refusals of the emulated cloud inside this process. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import MachineSpec


@dataclass(frozen=True)
class Group:
    """Machines that reach each other at `ports`: the address of each by its id. None yet for machines that
    were only placed close together.
    """

    addresses: Mapping[str, str] = field(default_factory=dict)
    ports: range = range(0)


def not_running(identity: str) -> ProviderError:
    return ProviderError(Fault.INVALID, f"The machine {identity} does not run.", code="NotRunning")


def refused_region(region: str) -> ProviderError:
    return ProviderError(Fault.AUTH, f"{region} is refused by script.", code="AccessDenied")


def identity_of(spec: MachineSpec) -> str:
    return "vm-" + hashlib.sha256(f"{spec.id}\0{spec.attempt}".encode()).hexdigest()[:12]


def host_key(identity: str) -> str:
    """Return a well-formed public key that belongs to nobody."""
    kind = b"ssh-ed25519"
    body = hashlib.sha256(identity.encode()).digest()
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (kind, body))
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"
