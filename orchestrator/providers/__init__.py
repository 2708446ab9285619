"""Create, list and delete machines. The library of a provider is loaded when the provider is opened."""

from __future__ import annotations

import difflib
from pathlib import Path

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Ending, Machine, Provider, clouds


def ending_of(provider: Provider, machine: Machine) -> Ending | None:
    """Return how `machine` ended; None if the provider does not know."""
    try:
        return provider.ending(machine)
    except ProviderError:
        return None


def made_there(provider: str, machine: Machine) -> ProviderError:
    """Return the error for a machine that generated its host key by itself: such a key cannot be verified."""
    return ProviderError(
        Fault.INVALID,
        f"The host key of {machine.id} was created on the machine, and {provider} has no record of it.",
        code="KeyMadeThere",
    )


def names() -> tuple[str, ...]:
    """Return the name of every provider whose machines outlive this process."""
    return clouds.names()


def exists(name: str) -> bool:
    return clouds.exists(name)


def open_provider(name: str, *, state: Path | None = None) -> Provider:
    """Return the provider with this name. Raises ProviderError(INVALID) for an unknown name.

    `state`: the folder for files that outlive this process.
    """
    if not clouds.exists(name):
        raise ProviderError(Fault.INVALID, _unknown(name), code="UnknownProvider")
    provider: Provider = clouds.resolve(clouds.traits(name).opener)(state)
    return provider


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, names(), 1, 0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no provider {name!r}; this version has {', '.join(names())}.{hint}"
