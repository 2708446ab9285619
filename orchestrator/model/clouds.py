"""The one registry of clouds.

Each provider's folder holds its `TRAITS`; this module knows only where. It loads them by name when a fact is
asked for, because `model` lies below `providers`: an import here would reverse the layers, and would
load every provider for `orch --help`. The modules that hold `TRAITS` load no cloud's library.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.model.cloud_traits import CloudTraits

ANY = "any"
"""In a profile: the cloud of the best recorded offer."""

LOCAL = "local"
"""This computer. It is asked even if no lease names it: asking is quick and costs nothing."""

REGISTRY = {
    "aws": "orchestrator.providers.aws.traits",
    "gcp": "orchestrator.providers.gcp.traits",
    LOCAL: "orchestrator.providers.local.traits",
}
"""Name of a cloud -> the module with its `TRAITS`. Another cloud is one more line."""

_HIDDEN = {"memory": "orchestrator.providers.memory"}
"""Clouds that exist only as long as their process: a profile may name them, messages do not."""


def names() -> tuple[str, ...]:
    """Return every cloud that users may name, in alphabetical order. Loads nothing."""
    return tuple(sorted(REGISTRY))


def elsewhere() -> tuple[str, ...]:
    """Return `names` without this computer."""
    return tuple(name for name in names() if name != LOCAL)


def exists(name: str) -> bool:
    """Return whether there is a cloud of that name. Loads nothing."""
    return name in REGISTRY or name in _HIDDEN


def module_of(name: str) -> str:
    """Return the module that holds the `TRAITS` of one cloud. Raise KeyError if there is none of that
    name.
    """
    return REGISTRY[name] if name in REGISTRY else _HIDDEN[name]


def traits(name: str) -> CloudTraits:
    """Return the facts of one cloud. Raise KeyError if there is none of that name."""
    module: Any = importlib.import_module(module_of(name))
    found: CloudTraits = module.TRAITS
    return found


def every() -> tuple[CloudTraits, ...]:
    """Return the facts of every cloud that users may name."""
    return tuple(traits(name) for name in names())


def is_here(name: str) -> bool:
    """Return whether the machines of that cloud are on this computer; False for a name that no cloud has."""
    return exists(name) and traits(name).here


def is_rented(name: str) -> bool:
    """Return whether a profile with `cloud: name` costs money. `name` is a cloud's, or ANY."""
    return name == ANY or traits(name).rented


def home_region(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the user's default region of that cloud; None if the environment names none."""
    path = traits(name).home if exists(name) else ""
    found: str | None = resolve(path)(environ) if path else None
    return found


def resolve(path: str) -> Any:
    """Return the function at "module:function"."""
    module, _, function = path.partition(":")
    return getattr(importlib.import_module(module), function)
