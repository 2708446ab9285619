"""The events of a ledger as dataclasses, and the codec between them and the fields of a line.

An event that is named "….intent", and `RunStarted`, is written before its effect happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Annotated, Any, ClassVar

from orchestrator.ledger.draft import Draft
from orchestrator.model import MachineFacts
from orchestrator.model.answers import Between, Malformed, Most, value

Time = Annotated[float, Between(0, 1e11)]
"""Unix seconds, or seconds."""
_Path = Annotated[str, Most(1 << 16)]
_Text = Annotated[str, Most(1 << 20)]
_FILES = 1_000_000


@dataclass(frozen=True)
class LedgerEvent:
    """Something that happened or is about to happen. `kind`: its name in the file."""

    kind: ClassVar[str]


@dataclass(frozen=True)
class LeaseOpened(LedgerEvent):
    """The first event. `for_run`: the run for which `orch run` opens the lease, None for `orch up`.

    `gang`: the lease of the first of several machines that train one model; "" if this is that lease, or has
    the only machine. `rank`: which of these machines the lease has, from 0.
    """

    kind = "lease.opened"
    lease: str
    profile: Mapping[str, Any]
    for_run: str | None = None
    gang: str = ""
    rank: Annotated[int, Between(0, 10_000)] = 0

    def __post_init__(self) -> None:
        _require_texts(self.profile, "name", "cloud", "path")


@dataclass(frozen=True)
class LeaseKept(LedgerEvent):
    """The user called `orch up`, so a lease that `orch run` opened is kept after the run."""

    kind = "lease.kept"


@dataclass(frozen=True)
class LeaseClosed(LedgerEvent):
    """Every machine of the lease is confirmed gone. A later `CreateIntent` opens it again."""

    kind = "lease.closed"


@dataclass(frozen=True)
class ProfileChanged(LedgerEvent):
    kind = "profile.changed"
    profile: Mapping[str, Any]

    def __post_init__(self) -> None:
        _require_texts(self.profile, "name", "cloud", "path")


@dataclass(frozen=True)
class CreateIntent(LedgerEvent):
    """A create call follows. Price in US dollars per hour; `lasts`: seconds from start to deadline. `group`:
    as in MachineSpec.
    """

    kind = "create.intent"
    attempt: int
    spec_id: str
    instance_type: str
    zone: str
    price: float
    deadline: Time
    lasts: float | None = None
    group: str = ""


@dataclass(frozen=True)
class CreateRefused(LedgerEvent):
    """`undecided`: the machine may exist in spite of the refusal."""

    kind = "create.refused"
    attempt: int
    fault: str
    code: _Text = ""
    message: _Text = ""
    undecided: bool = False


@dataclass(frozen=True)
class CreateAccepted(LedgerEvent):
    """A machine exists. `age`: seconds since its creation by its provider's clock. US dollars per hour."""

    kind = "create.accepted"
    attempt: int
    machine: MachineFacts
    created_at: Time
    deadline: Time | None
    price: float
    disk_usd_hour: Annotated[float, Between(0, 1e9)] = 0.0
    age: Time | None = None

    def __post_init__(self) -> None:
        _require_texts(self.machine, "id")


@dataclass(frozen=True)
class MachineReached(LedgerEvent):
    kind = "machine.reached"
    machine: str


@dataclass(frozen=True)
class MachineArmed(LedgerEvent):
    """A timer on the machine enforces its deadline, `left` seconds from now."""

    kind = "machine.armed"
    machine: str
    left: float | None = None


@dataclass(frozen=True)
class MachineEnded(LedgerEvent):
    """The machine stopped at `at`, by its cloud's clock."""

    kind = "machine.ended"
    machine: str
    at: Time


@dataclass(frozen=True)
class JoinIntent(LedgerEvent):
    """The network between these machines is about to be opened. Only the lease of the first one has it."""

    kind = "join.intent"
    machines: tuple[str, ...]


@dataclass(frozen=True)
class DeleteIntent(LedgerEvent):
    kind = "delete.intent"
    machines: tuple[str, ...]


@dataclass(frozen=True)
class StackInstalled(LedgerEvent):
    """`agent`: the runtime on the machine, as model.Agent. `stack`: as StackFacts."""

    kind = "stack.installed"
    agent: Mapping[str, str]
    stack: Mapping[str, Any]


@dataclass(frozen=True)
class ImageIntent(LedgerEvent):
    """The machine of the lease is about to be prepared for an image, after which nobody can log in."""

    kind = "image.intent"
    name: str


@dataclass(frozen=True)
class ImageMade(LedgerEvent):
    """An image exists, as model.images.MachineImage. `stored`: bytes, if the cloud told."""

    kind = "image.made"
    name: str
    cloud: str
    region: str
    labels: Mapping[str, str]
    disk: int = 0
    stored: int | None = None


@dataclass(frozen=True)
class ImageDeleted(LedgerEvent):
    kind = "image.deleted"
    name: str


@dataclass(frozen=True)
class RunStarted(LedgerEvent):
    kind = "run.started"
    run_id: str
    draft: Draft


@dataclass(frozen=True)
class RunFound(LedgerEvent):
    """The machine reports a run whose start cannot be read in the ledger."""

    kind = "run.found"
    run_id: str
    draft: Draft


@dataclass(frozen=True)
class RunResumed(LedgerEvent):
    """The run continues from checkpoint `copy` of an earlier attempt, saved at `taken_at`."""

    kind = "run.resumed"
    run_id: str
    attempt: int
    copy: int
    taken_at: Time


@dataclass(frozen=True)
class RunQueued(LedgerEvent):
    """The run waits on its machine for the runs before it."""

    kind = "run.queued"
    run_id: str


@dataclass(frozen=True)
class RunBegan(LedgerEvent):
    """A queued run was seen to have begun."""

    kind = "run.began"
    run_id: str


@dataclass(frozen=True)
class RunRefused(LedgerEvent):
    """The machine did not start a run that was announced: it has none of it."""

    kind = "run.refused"
    run_id: str
    detail: _Text


@dataclass(frozen=True)
class RunEnded(LedgerEvent):
    kind = "run.ended"
    run_id: str
    reason: str


@dataclass(frozen=True)
class Ran:
    """When the job of an attempt was active on `machine`, in Unix seconds, and its cost in US dollars."""

    run_id: str
    attempt: int
    machine: str
    begun: float
    ended: float
    usd: float = 0.0

    def is_of(self, run_id: str, attempt: int) -> bool:
        return (self.run_id, self.attempt) == (run_id, attempt)


@dataclass(frozen=True)
class LeftBehind:
    """A file of a pulled run that stayed on its machine. `can_come`: pulling again may bring it."""

    path: _Path
    can_come: bool


@dataclass(frozen=True)
class RunCollected(LedgerEvent):
    """The results are on the computer that writes this event."""

    kind = "run.collected"
    run_id: str
    left: Annotated[tuple[LeftBehind, ...], Most(_FILES)] = ()
    ran: Ran | None = None


@dataclass(frozen=True)
class RunReleased(LedgerEvent):
    """The machine was told that the results were pulled."""

    kind = "run.released"
    run_id: str


@dataclass(frozen=True)
class RunSuperseded(LedgerEvent):
    """The id has a new attempt; nothing waits for the files that the earlier one left on the machine."""

    kind = "run.superseded"
    run_id: str
    attempt: int | None = None
    left: Annotated[tuple[_Path, ...], Most(_FILES)] = ()


@dataclass(frozen=True)
class RunLost(LedgerEvent):
    """The results are gone with the machine."""

    kind = "run.lost"
    run_id: str
    reason: str
    detail: _Text
    ran: Ran | None = None


_KINDS: Mapping[str, type[LedgerEvent]] = {shape.kind: shape for shape in LedgerEvent.__subclasses__()}


def encode(event: LedgerEvent) -> dict[str, Any]:
    """Return the fields of an event's line. Fields that have their default are left out."""
    given = ((each.name, getattr(event, each.name), each.default) for each in fields(event))
    return {name: _plain(found) for name, found, default in given if found != default}


def decode(kind: str, data: Mapping[str, Any]) -> LedgerEvent | None:
    """Return the event of a line; None if its kind is unknown, as from a later version. Raise Malformed,
    a ValueError, if its fields are not those of its kind.
    """
    shape = _KINDS.get(kind)
    return None if shape is None else value(shape, dict(data))


def _plain(found: Any) -> Any:
    if isinstance(found, Draft):
        return found.as_json()
    if isinstance(found, tuple):
        return [_plain(each) for each in found]
    return asdict(found) if is_dataclass(found) and not isinstance(found, type) else found


def _require_texts(found: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(found.get(name), str):
            raise Malformed(f"has no {name}")
