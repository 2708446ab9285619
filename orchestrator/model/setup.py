"""What must exist in an account before `up` can make a machine there, and who makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class SetupStep:
    """One thing to make, or to remove. `act` may be called again after a kill: it changes nothing twice.

    `name` is the thing, `detail` what it is for, or what it admits.
    """

    name: str
    detail: str
    act: Callable[[], None] = field(compare=False, repr=False)


class Setup(Protocol):
    """What a cloud's module of that name offers. Both read only; each step carried out changes one thing.

    `source`: the addresses from which ssh is let in, as CIDR. `region`: None for the one in use.
    """

    def lacking(
        self, source: str, region: str | None, environ: Mapping[str, str]
    ) -> tuple[str, Sequence[SetupStep]]:
        """Where it would be made (account and region), and what is not there yet."""

    def made(self, region: str | None, environ: Mapping[str, str]) -> tuple[str, Sequence[SetupStep]]:
        """Where it was looked for, and how to remove what `lacking` once led to, and that alone."""
