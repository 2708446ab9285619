"""What the verbs return and `--json` prints: the record of a run, the status of a lease, and reports."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .outcomes import ExitReason
from .run_json import (
    Artifact,
    AttemptFacts,
    CodeFacts,
    CostFacts,
    DataFacts,
    Exited,
    MachineFacts,
    NodeFacts,
    NotWritten,
    RequestFacts,
    StackFacts,
    Unfetched,
)

RUN_SCHEMA = "orch.run/1"

PULL = "pull_s"
MODEL_CHECK = "model_check_s"
"""Names of timings."""

_MEMORY_FIELDS = {
    "out_of_memory": "resources.memory",
    "device_out_of_memory": "resources.accelerator.memory",
}


def finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics that are finite numbers."""
    found = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


@dataclass(frozen=True)
class RunRecord:
    """One run, as `runs/<id>/run.json` holds it and `orch train --json` prints it.

    A fact that was not observed is None, never invented. Paths in `artifacts` are relative to the run's
    folder; `path` is that folder on this computer (absent from the JSON object). Every field can be written
    as JSON, so that a scheduler's task may return a record.
    """

    run_id: str
    path: str
    exit: Exited
    command: Sequence[str] | None = None
    code: CodeFacts | None = None
    request: RequestFacts | None = None
    parity: Mapping[str, Any] | None = None
    resume_proof: Mapping[str, Any] | None = None
    stack: StackFacts | None = None
    data: DataFacts | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    profile: Mapping[str, Any] | None = None
    artifacts: Sequence[Artifact] = ()
    not_fetched: Sequence[Unfetched] = ()
    unwritten: Sequence[NotWritten] = ()
    model_check: Mapping[str, Any] | None = None
    acceptance: Mapping[str, Any] | None = None
    machine: MachineFacts | None = None
    cost: CostFacts | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    attempts: Sequence[AttemptFacts] = ()
    nodes: Sequence[NodeFacts] = ()
    """The machines that trained together, by rank; empty for one machine."""
    rank: int = 0
    """Which of these machines this is the record of. The first one's is that of the whole run."""
    started: bool = field(default=True, compare=False)
    """Whether the call that returned this record started the run. It is not in run.json, because it
    describes the call.
    """

    @property
    def folder(self) -> Path:
        """The run's folder on this computer: `path`."""
        return Path(self.path)

    @property
    def profile_path(self) -> str:
        """The profile's path from the project, for a shell; "PROFILE.yaml" if it was not recorded."""
        return shlex.quote(self.request["profile"]) if self.request else "PROFILE.yaml"

    @property
    def unchecked(self) -> bool:
        """Whether the run was fetched, but orch ended before it had checked the models among its files."""
        return PULL in self.timings and MODEL_CHECK not in self.timings

    @property
    def succeeded(self) -> bool:
        return self.exit.get("reason") == ExitReason.COMPLETED

    @property
    def lacked(self) -> str | None:
        """The profile field of the memory that the run used up, if it ended for that reason; else None."""
        return _MEMORY_FIELDS.get(str(self.exit.get("reason")))

    @property
    def wrote_no_output(self) -> bool:
        """Whether the run wrote none of the outputs that the profile names."""
        return any(each["no_other"] for each in self.unwritten)

    @property
    def missing_results(self) -> Sequence[Unfetched]:
        """The part of `not_fetched` that holds results: all files, and links that the profile asks for."""
        asked = ("file", "unreadable", "link")
        return [
            each
            for each in self.not_fetched
            if each["kind"] in (asked if each["declared"] else ("file", "unreadable"))
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the published object; its schema is `orch schema run`."""
        return {
            "schema": RUN_SCHEMA,
            "run_id": self.run_id,
            "exit": dict(self.exit),
            "command": list(self.command) if self.command is not None else None,
            "code": dict(self.code) if self.code else None,
            "request": dict(self.request) if self.request else None,
            "parity": dict(self.parity) if self.parity else None,
            "resume_proof": dict(self.resume_proof) if self.resume_proof else None,
            "stack": dict(self.stack) if self.stack else None,
            "data": dict(self.data) if self.data else None,
            "metrics": dict(self.metrics),
            "profile": dict(self.profile) if self.profile else None,
            "artifacts": [dict(artifact) for artifact in self.artifacts],
            "not_fetched": [dict(each) for each in self.not_fetched],
            "unwritten": [dict(each) for each in self.unwritten],
            "model_check": dict(self.model_check) if self.model_check else None,
            "acceptance": dict(self.acceptance) if self.acceptance else None,
            "machine": dict(self.machine) if self.machine else None,
            "cost": dict(self.cost) if self.cost else None,
            "timings": dict(self.timings),
            "attempts": [dict(attempt) for attempt in self.attempts],
            "nodes": [dict(node) for node in self.nodes],
            "rank": self.rank,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], folder: Path) -> RunRecord:
        """Return the record that an object of this version or an older one describes. Missing fields have
        their defaults.
        """
        known = {key: value[key] for key in value if key in cls.__dataclass_fields__}
        return cls(**{**known, "path": str(folder)})


@dataclass(frozen=True)
class LeaseStatus:
    """One lease, as `status` and `up` report it. Prices in US dollars; times are Unix seconds.

    `state`: pending, running, stopping, stopped, gone (the machine is not listed any more), closed, or
    unknown if the provider was not asked or its region refused; `unseen` has the refusal. `damaged`: the
    ledger has lines that cannot be read. `deadline_proven`: the cloud, or a timer that was seen to run on the
    machine, ends the machine at its deadline. `runs_known`: no run of the machine is missing in `runs`,
    because the ledger is whole or the machine was asked. `owner`: the client that opened the lease, in a
    team's ledger; else "". `stale`: why the ledger could not be read from its store or file; the other fields
    are then as they were last read.
    """

    lease: str
    name: str
    cloud: str
    state: str
    profile: str
    machine: str | None
    instance_type: str | None
    zone: str | None
    price: float
    cost: float
    created_at: float | None
    deadline: float | None
    detail: Mapping[str, Any]
    attempts: Sequence[Mapping[str, Any]]
    runs: Sequence[Mapping[str, Any]]
    damaged: bool = False
    runs_known: bool = True
    deadline_proven: bool = True
    unseen: str | None = None
    owner: str = ""
    stale: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class CancelReport:
    """What `cancel` did. `cancelled`: it ended the run; False if the run had ended before.

    `reason`, `code`, `signal` and `detail` as in `Exit`. `ended_at`: Unix seconds, None if it is not known.
    `fetched`: the results are on this computer.
    """

    run_id: str
    cancelled: bool
    reason: str
    code: int | None = None
    signal: int | None = None
    detail: str = ""
    ended_at: float | None = None
    fetched: bool = False

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class PullReport:
    """The runs that `pull` fetched, and the other runs of the lease: `unfetched` have ended, `running`
    have not.
    """

    records: Sequence[RunRecord]
    unfetched: Sequence[str] = ()
    running: Sequence[str] = ()


@dataclass(frozen=True)
class DownReport:
    """The machines that `down` ended, by id; `seconds` and `cost` (US dollars) since they were created.

    `unnoted`: sentences on what could not be recorded on this computer, though the machines are gone. `lost`:
    {run_id, reason, detail} of each run whose results went with its machine before they were fetched, except
    runs that `down` was told to discard or that were reported as lost before. `left`: {lease, folder} of each
    lease that `down --all` left alone because it has no machine. `unseen`: regions that refused `down --all`,
    as "cloud region", each with its refusal; if there are any, `proven_gone` is False.
    """

    leases: Sequence[str]
    machines: Sequence[str]
    seconds: float
    cost: float
    proven_gone: bool
    unnoted: Sequence[str] = ()
    lost: Sequence[Mapping[str, str]] = ()
    left: Sequence[Mapping[str, str]] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
