"""The nouns that cross seams, and the protocols Provider and Host.

Plain frozen dataclasses, quick to import. Sizes are bytes, durations seconds, times aware UTC
datetimes, prices US dollars an hour, hashes lower-case hex SHA-256.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

Labels = Mapping[str, str]

LABEL_LEASE = "orch-lease"
LABEL_OWNER = "orch-owner"
LABEL_ATTEMPT = "orch-attempt"
LABEL_EXPIRES = "orch-expires-at"
LABEL_SPEC = "orch-spec"

FAR_BASE = "/opt/orch"
"""Where everything of ours lives on a machine."""


# ---------------------------------------------------------------- what is wanted, what is sold


@dataclass(frozen=True)
class Bound:
    """A number asked for: exactly `value`, or at least `value` when `at_least`."""

    value: float
    at_least: bool = False

    def admits(self, offered: float) -> bool:
        return offered >= self.value if self.at_least else offered == self.value


@dataclass(frozen=True)
class AcceleratorNeed:
    """GPUs, by name (`T4`) or by memory of each (bytes), `count` of them."""

    count: int = 1
    name: str | None = None
    memory: Bound | None = None


@dataclass(frozen=True)
class Need:
    """What a profile asks of a cloud. `None` means: anything will do."""

    cloud: str
    cpus: Bound | None = None
    memory: Bound | None = None
    disk: int = 20 << 30
    accelerator: AcceleratorNeed | None = None
    arch: str | None = None
    spot: bool = False
    region: str | None = None
    zone: str | None = None
    max_price: float | None = None
    local_ssd: int | None = None
    """Bytes of SSD inside the machine, at least."""
    network: float | None = None
    """Gbit/s, at least."""


@dataclass(frozen=True)
class Offer:
    """What a cloud sells: one instance type in one zone at one price. Sizes in bytes.

    `zone` is "" where nobody recorded which zones of the region have the type: the cloud decides.
    """

    cloud: str
    instance_type: str
    region: str
    zone: str
    cpus: int
    memory: int
    arch: str
    price: float
    spot: bool = False
    accelerator: str | None = None
    accelerator_count: int = 0
    """Whole ones; 0 with a name where the type brings a part of one."""
    gpu_memory: int = 0
    vendor: str = ""
    """Who made the accelerator: nvidia, amd, aws, …; "" where that is not recorded."""
    attach: str = ""
    """The cloud's name of the accelerator that the create call must attach; "" where the type brings it."""
    local_ssd: int = 0
    network: float = 0.0
    """Gbit/s that the type sustains; 0 where that is not recorded."""
    on_demand: float | None = None
    """Of a spot offer: what the same machine costs on demand, where that is known."""
    price_is_bound: bool = False
    """`price` is the most that may be asked, not what is asked now: spot whose price nobody recorded."""


# ---------------------------------------------------------------- machines


class MachineState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"  # exists and may cost, but runs nothing; only `delete` ends it


@dataclass(frozen=True)
class MachineSpec:
    """One machine, whole: everything that the single create call needs.

    The same `id` and `attempt` always name the same machine: creating it twice yields it once.
    `user_data` is a `#!` script that the machine runs as root at first boot, before it is
    reachable; it holds no secret. `ssh_public_key` is one OpenSSH line, allowed for `user`.
    """

    id: str
    attempt: int
    offer: Offer
    disk: int
    deadline: datetime
    labels: Labels
    ssh_public_key: str
    user_data: str = ""
    image: str | None = None


@dataclass(frozen=True)
class Machine:
    """What exists at a provider. A machine that is gone is not listed."""

    provider: str
    id: str
    name: str
    state: MachineState
    labels: Labels
    instance_type: str
    zone: str
    price: float
    created_at: datetime
    deadline: datetime | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Endpoint:
    """Where a machine answers, and the host keys by which it proves itself (OpenSSH lines: "type base64")."""

    address: str
    port: int
    user: str
    host_keys: tuple[str, ...]


class Provider(Protocol):
    """Sells machines; knows no jobs. Raises ProviderError and nothing else."""

    name: str

    def offers(self, need: Need) -> Sequence[Offer]:
        """What could serve `need`, cheapest first. Reads only."""

    def create(self, spec: MachineSpec) -> Machine:
        """The machine of `spec.id` and `spec.attempt`, made now or found. Returns when accepted."""

    def list(self, labels: Labels) -> Sequence[Machine]:
        """Every machine that carries all of `labels`, in any state but gone: the witness of deletion."""

    def delete(self, machine: Machine) -> None:
        """End it, with its disk. Absent already is success. Returns when accepted: poll `list`."""

    def endpoint(self, machine: Machine) -> Endpoint | None:
        """Address and host keys, by a channel that an attacker does not own; None while it has none yet."""


# ---------------------------------------------------------------- hosts


@dataclass(frozen=True)
class Completed:
    """A command that ended. `returncode` is 128 + n where signal n ended it."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes


class Channel(Protocol):
    """One running command, both ways. A context manager: leaving it closes the channel."""

    def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    def read(self, limit: int) -> bytes:
        """Up to `limit` bytes of its stdout, at least one; b"" at its end."""

    def wait(self, timeout: float | None = None) -> Completed:
        """Its end; `stdout` holds what was not read. Call after close_stdin."""

    def close(self) -> None: ...
    def __enter__(self) -> Channel: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Host(Protocol):
    """A way onto a machine: a door, not a manager. Raises HostError.

    Commands are argument lists, never shell text; the one place that quotes is inside.
    A command's failure is its returncode, not an exception.
    """

    name: str

    def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float | None = None
    ) -> Completed: ...

    def open(self, argv: Sequence[str]) -> Channel: ...

    def put(self, source: bytes | Path, target: str, *, mode: int = 0o644) -> None:
        """Write `target` whole or not at all; its folder is made."""

    def get(self, source: str, target: Path) -> None:
        """Fetch one file, whole or not at all."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Agent:
    """The runtime as it lies on one side: an interpreter, the runtime's folder, and our base folder there."""

    python: str
    root: str
    base: str

    def argv(self, verb: str, *arguments: str) -> tuple[str, ...]:
        """The command that runs one verb of the runtime on that side."""
        return (self.python, "-I", f"{self.root}/enter.py", verb, *arguments)


# ---------------------------------------------------------------- trees and bytes


@dataclass(frozen=True)
class Entry:
    """One path of a tree. `kind` is file, dir or link; `digest` of a file's content; `target` of a link."""

    path: str
    kind: str
    size: int = 0
    mode: int = 0
    digest: str = ""
    target: str = ""


@dataclass(frozen=True)
class Manifest:
    """A tree as facts, sorted by path. `digest` covers every field of every entry."""

    entries: tuple[Entry, ...]
    digest: str


# ---------------------------------------------------------------- the stack


@dataclass(frozen=True)
class Pin:
    """One locked package: normalised name, version, allowed SHA-256 of its files, PEP 508 marker or ""."""

    name: str
    version: str
    hashes: tuple[str, ...]
    marker: str = ""


@dataclass(frozen=True)
class Lock:
    """A project's pins as read. `kind` is requirements, uv.lock or pylock; `digest` of the file's bytes."""

    path: Path
    kind: str
    digest: str
    pins: tuple[Pin, ...]


@dataclass(frozen=True)
class Distribution:
    """One installed package: `record` hashes its RECORD; `altered` lists files that no longer match it."""

    name: str
    version: str
    record: str
    altered: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fingerprint:
    """What is really installed on one side, read back and not assumed.

    `facts` are strings by name: python, implementation, libc, os, kernel, machine, cpu_model,
    cpu_flags, driver, cuda, gpu, timezone, locale, ... ; `environment` the variables that can change
    numbers. `digest` covers python, implementation and distributions.
    """

    digest: str
    python: str
    distributions: tuple[Distribution, ...]
    facts: Mapping[str, str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """One way in which the other side is not this one.

    `kind`: package, interpreter, platform, driver, environment, lock; `declared` with its reason when
    it is expected (a platform wheel, another kernel) or allowed by the profile.
    """

    kind: str
    name: str
    here: str | None
    there: str | None
    declared: bool
    reason: str = ""


# ---------------------------------------------------------------- jobs and runs


@dataclass(frozen=True)
class TreeLink:
    """A synced tree at `source` (absolute) appears in a run's working folder at `target`.

    `target` is relative ("." for the code itself) or absolute; `copied` trees are private to the run,
    others share their bytes.
    """

    source: str
    target: str
    copied: bool = False


@dataclass(frozen=True)
class Job:
    """What to run on one side. argv[0] "python" is `python`; its folder comes first on PATH.

    `trees` empty: run in `cwd` as it is. Otherwise the working folder `<run>/work` is staged from them
    and `cwd` is relative to it. `observe_steps` > 0 records every tensor of the first steps;
    `stop_after_observed` then ends the run.
    """

    run_id: str
    argv: tuple[str, ...]
    python: str
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    trees: tuple[TreeLink, ...] = ()
    observe_steps: int = 0
    stop_after_observed: bool = False


@dataclass(frozen=True)
class Exit:
    """How a run ended.

    `reason`: completed, failed, signal, out_of_memory, disk_full, cancelled, observed (stopped after the
    observed steps), lost (the machine went away). `detail` is a sentence for people.
    """

    code: int | None
    signal: int | None
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class RunState:
    """`state`: absent, running, ended or lost. `log_bytes` is the length of its output so far."""

    state: str
    exit: Exit | None = None
    log_bytes: int = 0
    started_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True)
class Divergence:
    """Where two runs first differ. `relative` is the relative L2 difference of that tensor."""

    step: int
    stage: str
    tensor: str
    relative: float | None
    detail: str


@dataclass(frozen=True)
class Verdict:
    """The outcome of comparing two recorded runs.

    `verdict`: IDENTICAL, EQUIVALENT, DIVERGENT, UNSTABLE or NOT COMPARED. `cause` is a sentence or
    None; `confirmed` only by a counterfactual run. `compared` counts the tensors that were compared.
    """

    verdict: str
    divergence: Divergence | None = None
    cause: str | None = None
    confirmed: bool = False
    compared: int = 0
    steps: int = 0
    detail: str = ""


# ---------------------------------------------------------------- telling the user


class Progress(Protocol):
    """Where long work tells what it does. Decorative: it never decides."""

    def say(self, text: str) -> None: ...
    def transfer(self, label: str, done: int, total: int) -> None:
        """`done` of `total` bytes of `label`; call as often as you like, and once with done == total."""


class Silent:
    """Progress for nobody."""

    def say(self, text: str) -> None: ...
    def transfer(self, label: str, done: int, total: int) -> None: ...


# ---------------------------------------------------------------- what the two doors return

RUN_SCHEMA = "orch.run/1"


@dataclass(frozen=True)
class RunRecord:
    """One run, as `runs/<id>/run.json` holds it and `orch train --json` prints it.

    A fact that was not observed is None, never invented. `artifacts` paths are relative to the run's
    folder; `folder` is where it lies here (absent from the JSON object).
    """

    run_id: str
    folder: Path
    exit: Mapping[str, Any]
    parity: Mapping[str, Any] | None = None
    stack: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    profile: Mapping[str, Any] | None = None
    artifacts: Sequence[Mapping[str, Any]] = ()
    model_check: Mapping[str, Any] | None = None
    machine: Mapping[str, Any] | None = None
    cost: Mapping[str, Any] | None = None
    timings: Mapping[str, float] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        return self.exit.get("reason") == "completed"

    def as_json(self) -> dict[str, Any]:
        """The published object; its schema is `orch schema run`."""
        return {
            "schema": RUN_SCHEMA,
            "run_id": self.run_id,
            "exit": dict(self.exit),
            "parity": dict(self.parity) if self.parity else None,
            "stack": dict(self.stack) if self.stack else None,
            "data": dict(self.data) if self.data else None,
            "metrics": dict(self.metrics),
            "profile": dict(self.profile) if self.profile else None,
            "artifacts": [dict(artifact) for artifact in self.artifacts],
            "model_check": dict(self.model_check) if self.model_check else None,
            "machine": dict(self.machine) if self.machine else None,
            "cost": dict(self.cost) if self.cost else None,
            "timings": dict(self.timings),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], folder: Path) -> RunRecord:
        known = {key: value[key] for key in value if key != "schema"}
        return cls(folder=folder, **known)


@dataclass(frozen=True)
class LeaseStatus:
    """One lease, as `status` and `up` tell it. Prices in US dollars; times are Unix seconds.

    `state`: pending, running, stopping, stopped, gone (the machine is not listed any more), closed, or
    unknown where the provider was not asked.
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

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class DownReport:
    """What `down` ended. `machines` are ids; `seconds` and `cost` (US dollars) since they were made."""

    leases: Sequence[str]
    machines: Sequence[str]
    seconds: float
    cost: float
    proven_gone: bool
