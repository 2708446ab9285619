"""What must exist in an account before `up` can create a machine there, and the steps that create it."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class SetupStep:
    """One thing to create or to remove. `act` may be called again after a kill; a second call changes
    nothing.

    `name` is the thing; `detail` is its purpose, or what it permits.
    """

    name: str
    detail: str
    act: Callable[[], None] = field(compare=False, repr=False)


class Setup(Protocol):
    """What a cloud's module for `orch setup` offers. Both methods only read; each step that is carried out
    changes one thing.

    `source`: the addresses from which ssh is allowed, as CIDR. `region`: None for the one in use.
    """

    def lacking(
        self, source: str, region: str | None, environ: Mapping[str, str]
    ) -> tuple[str, Sequence[SetupStep]]:
        """Return where the steps apply (account and region), and the steps that create what is missing."""

    def made(self, region: str | None, environ: Mapping[str, str]) -> tuple[str, Sequence[SetupStep]]:
        """Return where the steps apply, and the steps that remove what `lacking` once created, and
        nothing else.
        """


def admits(ranges: Iterable[str], source: str) -> bool:
    """Return whether the addresses of `source`, as CIDR, lie in one of `ranges`."""
    wanted = ipaddress.ip_network(source, strict=False)
    return any(_lies_in(wanted, ipaddress.ip_network(each, strict=False)) for each in ranges)


def _lies_in(wanted: _Network, around: _Network) -> bool:
    if isinstance(wanted, ipaddress.IPv4Network) and isinstance(around, ipaddress.IPv4Network):
        return wanted.subnet_of(around)
    if isinstance(wanted, ipaddress.IPv6Network) and isinstance(around, ipaddress.IPv6Network):
        return wanted.subnet_of(around)
    return False
