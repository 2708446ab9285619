"""What is known of a run when it starts: the first part of its record, and its job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from orchestrator.model import Agent, CodeFacts, DataFacts, Job, RequestFacts, StackFacts
from orchestrator.model.answers import Most, value

_Text = Annotated[str, Most(1 << 20)]
_OPTIONAL = ("command", "code", "request", "agent", "job", "resume_proof", "store")


@dataclass(frozen=True)
class Retried:
    """How often a run was retried automatically since the last call by the user, by the reasons of
    profile.Retry.
    """

    interruption: int = 0
    error: int = 0


FIRST = Retried()


@dataclass(frozen=True)
class Try:
    """Which attempt at its run id a run is, from 1, and what changed since the attempt before."""

    number: int = 1
    changed: tuple[_Text, ...] = ()
    retried: Retried = FIRST


@dataclass(frozen=True)
class Draft:
    """What is known of a run when it starts. A part that is not known is None. `job` lacks its environment,
    which may hold secrets.

    `store`: the url of the store to which the machine may upload the results of the run.
    """

    stack: StackFacts | None = None
    data: DataFacts | None = None
    parity: Mapping[str, Any] | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    attempt: Try = field(default_factory=Try)
    command: Annotated[tuple[_Text, ...], Most(100_000)] | None = None
    code: CodeFacts | None = None
    agent: Agent | None = None
    job: Job | None = None
    resume_proof: Mapping[str, Any] | None = None
    store: Annotated[str, Most(2048)] | None = None
    request: RequestFacts | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the draft as an event of the ledger holds it."""
        return {key: each for key, each in asdict(self).items() if each is not None or key not in _OPTIONAL}

    @classmethod
    def from_json(cls, found: object) -> Draft:
        """Return the draft that an event holds. Raise Malformed, a ValueError, if it is not one."""
        return value(cls, found)
