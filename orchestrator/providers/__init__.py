"""Providers sell machines. They are opened by name, and loaded only then."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
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
    known = ", ".join(sorted(_REGISTRY))
    near = difflib.get_close_matches(name, _REGISTRY, 1, 0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no provider {name!r}; this version has {known}.{hint}"
