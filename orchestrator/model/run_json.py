"""The objects of run.json, as types. Each is plain JSON, so that a scheduler's task may return a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from .answers import Count, Most


class _NoticedFacts(TypedDict):
    what: str


class NoticedFacts(_NoticedFacts, total=False):
    """What was wrong with a job while it went on; see Noticed."""

    at: float
    step: int | None
    detail: str


class _Exited(TypedDict):
    reason: str


class Exited(_Exited, total=False):
    """How a run ended; see Exit. `retry`: the same command may succeed with nothing changed."""

    code: int | None
    signal: int | None
    detail: str
    retry: bool
    noticed: Annotated[list[NoticedFacts], Most(100)]


class _Git(TypedDict):
    revision: str
    dirty: bool


class GitFacts(_Git, total=False):
    """The git revision of the code. `branch`: absent if no branch was checked out.

    `dirty`: the code that was sent differs from the revision. `changed`: how many paths differ; `changes`:
    the SHA-256 of these paths, each with its digest. Both are absent if the code is clean.
    """

    branch: str
    changed: int
    changes: str


class NotKept(TypedDict):
    """A file of the code that is neither in git nor in the run's folder. `why`: see runs.kept_code.Why."""

    path: str
    why: str


class _Code(TypedDict):
    digest: str
    files: int


class CodeFacts(_Code, total=False):
    """The code that was sent. `git`: absent outside a repository. `not_kept`: the first of the files that
    were not kept.
    """

    git: GitFacts
    not_kept: Annotated[list[NotKept], Most(1000)]


class RequestFacts(TypedDict):
    """How a run was requested: by which version of orch, with which profile, and with which options.

    `profile`: the file's path. `withheld`: names of overrides whose values may be secrets, and are stored
    nowhere.
    """

    orch: str
    profile: str
    profile_sha256: str
    overrides: Annotated[list[Annotated[str, Most(1 << 17)]], Most(10_000)]
    withheld: Annotated[list[Annotated[str, Most(1 << 17)]], Most(10_000)]
    local_parity: bool


class MountFacts(TypedDict):
    """A mount, or another call that changes what lies at a path. `target`: "" where it is not known."""

    program: str
    call: str
    target: str


class DataFacts(TypedDict, total=False):
    """One digest of all trees, files, bytes. `altered`: what changed on the machine during the run. `mounts`:
    those that the run made. `checked`: False if it is not known whether the run read exactly these bytes,
    because its machine is gone, or because it could not be watched for mounts.

    `streamed`: how many of the trees may have arrived during the run. For these, the digest uses the
    checksums of their objects in the store; for others, their SHA-256.
    """

    digest: str | None
    files: int
    bytes: int
    altered: list[str]
    mounts: list[MountFacts]
    checked: bool
    streamed: int


class StackFacts(TypedDict, total=False):
    """The installed packages. `inherited`: variables of the user's shell that the run got."""

    digest: str
    python: str
    packages: int
    interpreter: str
    lock: str
    inherited: Mapping[str, Annotated[str, Most(1 << 20)]]
    differences: list[Any]


class _Artifact(TypedDict):
    path: str
    bytes: Count


class Artifact(_Artifact, total=False):
    """A file of a run; `path` is relative to the run's folder."""

    sha256: str


class _Unfetched(TypedDict):
    path: str
    kind: str
    declared: bool


class Unfetched(_Unfetched, total=False):
    """A path that stayed on the machine. `reason`: see Refused. `declared`: the profile names the outputs."""

    reason: str
    detail: str


class NotWritten(TypedDict):
    """An output that the profile names and the run did not write. `no_other`: the run wrote no other
    output that the profile names, either.
    """

    pattern: str
    looked_for: str
    nearest: str | None
    no_other: bool


class MachineFacts(TypedDict, total=False):
    """A machine, as the ledger, `status` and run.json describe it."""

    provider: str
    id: str
    name: str
    state: str
    instance_type: str
    zone: str
    price_usd_hour: float
    detail: Mapping[str, Any]


class CostFacts(TypedDict, total=False):
    """What a run cost, and what its lease had cost by then: US dollars, seconds."""

    usd: float
    seconds: float
    price_usd_hour: float
    run_usd: float
    run_seconds: float
    charged_seconds: float
    lease_usd: float
    lease_seconds: float


class NodeFacts(TypedDict):
    """One of several machines that train together. `run`: the id of its own record; `exit`: its reason.

    `steps`: how many it trained, in `trained` seconds. `waited`: seconds of these in which its steps waited
    for their input. `busy`: the share (0..1) of its cores that computed. None: not known.
    """

    rank: Count
    run: str | None
    machine: str | None
    exit: str | None
    steps: int | None
    trained: float | None
    waited: float | None
    busy: float | None


class RetriedFacts(TypedDict):
    """How often a run was retried automatically, by kind of failure."""

    interruption: Count
    error: Count


class ResumedFacts(TypedDict):
    """The checkpoint from which an attempt continued."""

    attempt: Count
    seq: Count
    taken_at: float


class AttemptFacts(TypedDict, total=False):
    """One attempt at a run id. Times are Unix seconds. `retried`: retries before it since the last call by
    the user.

    `steps`: how many steps it trained, if its trace was fetched and has them.
    """

    number: int
    started_at: float | None
    ended_at: float | None
    reason: str
    detail: str
    changed: Sequence[str]
    machine: str | None
    provider: str | None
    instance_type: str | None
    zone: str | None
    usd: float | None
    steps: int | None
    resumed_from: ResumedFacts | None
    retried: RetriedFacts
