"""The runs of a project as a list: how each ended, and where its results are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .run_json import CodeFacts


class Where(StrEnum):
    """Where the results of a run are. `PastRun.place` names the folder, the machine or the client."""

    HERE = "here"
    MACHINE = "machine"
    ELSEWHERE = "elsewhere"  # another client of the team fetched them
    REMOVED = "removed"  # the files were downloaded here, and their folder is gone
    LOST = "lost"
    DISCARDED = "discarded"  # their machine was deleted without them, by `orch down --discard`


@dataclass(frozen=True)
class ModelCount:
    """The models that a run left: how many predict the same on this computer, how many do not, and how
    many were not checked.
    """

    same: int = 0
    wrong: int = 0
    not_checked: int = 0


@dataclass(frozen=True)
class PastRun:
    """One run with all its attempts. What is not known is None; times are Unix seconds.

    `profile`: its name, "" if it is not known. `reason`: how the run ended, as in run.json; None until it was
    seen to end. `active`: it was not seen to end, and its machine is there as far as its ledger tells.
    `queued`: when it was last seen, it waited for other runs on its machine.
    `owner`: the client that started it, in a team's ledger; else "". `recorded_at`: when its record on this
    computer was written. `usd`: US dollars of all its attempts.
    """

    run_id: str
    profile: str
    where: Where
    place: str
    lease: str | None = None
    owner: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    recorded_at: float | None = None
    reason: str | None = None
    active: bool = False
    detail: str = ""
    parity: str | None = None
    models: ModelCount | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    usd: float | None = None
    attempts: int = 1
    provider: str | None = None
    machine: str | None = None
    instance_type: str | None = None
    code: CodeFacts | None = None
    queued: bool = False


@dataclass(frozen=True)
class Unreadable:
    """A record or a ledger that cannot be read. `why` is a sentence."""

    place: str
    why: str


@dataclass(frozen=True)
class History:
    """Runs, the newest first. `more`: there are older ones. `ledger`: the url of the team's ledger, else "".

    `stale`: why that ledger could not be read; the runs are then as they were last read.
    """

    runs: Sequence[PastRun]
    damaged: Sequence[Unreadable] = ()
    more: bool = False
    ledger: str = ""
    stale: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
