"""Providers sell machines. They are opened by name, and loaded only then."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Machine, Provider

_REGISTRY = {
    "aws": ("orchestrator.providers.aws.provider", "open_aws"),
    "gcp": ("orchestrator.providers.gcp.provider", "open_gcp"),
    "local": ("orchestrator.providers.local.provider", "open_local"),
    "memory": ("orchestrator.providers.memory", "open_memory"),
}


@runtime_checkable
class Vouching(Protocol):
    """A provider whose machines begin with a host key that others may have read, and are to get a new one.

    Such a machine says `detail["host_key"] == "injected"`.
    """

    def vouch(self, machine: Machine, host_keys: Sequence[str]) -> None:
        """From now on `host_keys` prove the machine; while one replaces another, the new one comes first."""


@dataclass(frozen=True)
class Ending:
    """What became of a machine that does not run any more, as its cloud tells it.

    `message` is a sentence. `fault` is the one with which the create call would have been refused, had the
    cloud known then: CAPACITY where it could not give the machine or took it back; None where nobody
    refused anything, as when the machine powered itself off. `preempted`: a spot machine that was taken back.
    """

    message: str
    fault: Fault | None = None
    code: str = ""
    preempted: bool = False
    next_command: str | None = None


@runtime_checkable
class Telling(Protocol):
    """A provider that knows what became of a machine that it does not list."""

    def ending(self, machine: Machine) -> Ending | None:
        """None where the machine exists, or may come to be listed yet. Raises ProviderError."""


@runtime_checkable
class Confined(Protocol):
    """A provider that sees a part of the cloud, by what the environment says: a project, some regions."""

    def require_reach(self, machine: Machine) -> None:
        """ProviderError(INVALID) with what to export, where the machine is in another part."""


def require_reach(provider: Provider, machine: Machine) -> None:
    """The same of whatever lies under a provider that retries. Not to be seen is not to be gone."""
    inner = getattr(provider, "inner", provider)
    if isinstance(inner, Confined):
        inner.require_reach(machine)


def ending_of(provider: Provider, machine: Machine) -> Ending | None:
    """The same of whatever lies under a provider that retries; None where it cannot be learned."""
    inner = getattr(provider, "inner", provider)
    if not isinstance(inner, Telling):
        return None
    try:
        return inner.ending(machine)
    except ProviderError:
        return None


def vouching(provider: Provider) -> Vouching | None:
    """What lies under a provider that retries, where it is one that vouches."""
    inner = getattr(provider, "inner", provider)
    return inner if isinstance(inner, Vouching) else None


def open_provider(name: str, *, state: Path | None = None) -> Provider:
    """The provider of that name; `state` is where it may keep what outlives this process.

    Raises ProviderError(INVALID) for a name that is unknown.
    """
    if name not in _REGISTRY:
        raise ProviderError(Fault.INVALID, _unknown(name), code="UnknownProvider")
    module, opener = _REGISTRY[name]
    provider: Provider = getattr(importlib.import_module(module), opener)(state)
    return provider


def _unknown(name: str) -> str:
    known = ", ".join(name for name in sorted(_REGISTRY) if name != "memory")  # which lasts as long as a test
    near = difflib.get_close_matches(name, _REGISTRY, 1, 0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no provider {name!r}; this version has {known}.{hint}"
