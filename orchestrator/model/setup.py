"""What must exist in an account before `up` can create a machine there, and the steps that create it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


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
