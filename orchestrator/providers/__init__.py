"""Providers sell machines. They are opened by name, and loaded only then."""

from __future__ import annotations

import difflib
import importlib
from pathlib import Path

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Ending, Machine, Provider

_REGISTRY = {
    "aws": ("orchestrator.providers.aws.provider", "open_aws"),
    "gcp": ("orchestrator.providers.gcp.provider", "open_gcp"),
    "local": ("orchestrator.providers.local.provider", "open_local"),
    "memory": ("orchestrator.providers.memory", "open_memory"),
}


def ending_of(provider: Provider, machine: Machine) -> Ending | None:
    """Ask how `machine` ended; None if the provider cannot tell."""
    try:
        return provider.ending(machine)
    except ProviderError:
        return None


def made_there(provider: str, machine: Machine) -> ProviderError:
    """The refusal to vouch for a machine that made its host key itself."""
    return ProviderError(
        Fault.INVALID,
        f"The host key of {machine.id} was made on the machine; {provider} records no other.",
        code="KeyMadeThere",
    )


def names() -> tuple[str, ...]:
    """Every provider whose machines outlive this process."""
    return tuple(name for name in sorted(_REGISTRY) if name != "memory")


def exists(name: str) -> bool:
    return name in _REGISTRY


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
