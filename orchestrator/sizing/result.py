"""size.json of a scratch run, every value checked. For its meaning see runtime.sizing and `size` here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from orchestrator.model.answers import Between, Malformed, Most, parsed, value
from orchestrator.model.files import regular_bytes

MOST_BYTES = 1 << 24

Word = Annotated[str, Most(4096)]
Bytes = Annotated[int, Between(0, 1 << 60)]
Examples = Annotated[int, Between(1, 1 << 40)]
Seconds = Annotated[float, Between(0, 1e9)]


class Step(TypedDict):
    """One step. `peak`: bytes beyond what was in use at its start; None if that was not counted."""

    peak: Annotated[int, Between(-(1 << 60), 1 << 60)] | None
    rss: Annotated[int, Between(-(1 << 60), 1 << 60)]
    seconds: Seconds
    cpu: Annotated[float, Between(-1e9, 1e9)]


class Tried(TypedDict):
    """One batch size, and its measured steps."""

    batch: Examples
    steps: Annotated[list[Step], Most(10_000)]


class _Note(TypedDict):
    batch: Examples
    why: Literal["began", "failed", "time", "memory"]


class Note(_Note, total=False):
    """A batch size that was not measured, and why."""

    error: Word
    detail: Word
    seconds: Seconds
    bytes: Bytes


class State(TypedDict):
    """Bytes by formula."""

    weights: Bytes
    trainable: Bytes
    slots: Bytes
    activations: Bytes | None


class _Made(TypedDict):
    batches: Examples
    cpu: Seconds
    seconds: Seconds
    bytes_read: Annotated[int, Between(-(1 << 60), 1 << 60)]


class Made(_Made, total=False):
    """What it took to make one batch."""

    one_thread: bool | None


class _End(TypedDict):
    end: Literal["no step", "began", "done", "no batch", "failed"]


class Result(_End, total=False):
    """The whole of size.json; parts that were not reached yet are absent."""

    detail: Word
    kind: Word
    device: Word
    xla: bool
    policy: Word
    optimizer: Word | None
    own_batch: Examples
    batch_bytes: Bytes
    base_rss: Bytes
    state: State
    pipeline: Made | None
    sizes: list[Tried]
    notes: list[Note]


_REASONS: dict[str, set[str]] = {
    "began": set(),
    "failed": {"error", "detail"},
    "time": {"seconds"},
    "memory": {"bytes"},
}
_WITH_STATE = ("kind", "device", "xla", "policy", "own_batch", "batch_bytes", "base_rss", "notes")


def read_sizes(path: Path) -> dict[str, Any] | None:
    """Return what a scratch run measured; None if there is no file. Raise Malformed if its content is not
    valid.
    """
    try:
        found: Any = value(Result, parsed(regular_bytes(path, MOST_BYTES), most=MOST_BYTES))
        _check(found)
    except FileNotFoundError:
        return None
    except Malformed as error:
        raise Malformed(f"{path.name} is not a valid result of orch: {error}") from None
    result: dict[str, Any] = found
    return result


def _check(found: dict[str, Any]) -> None:
    lacking = [name for name in _WITH_STATE if name not in found]
    if found.get("sizes") and "state" in found and lacking:
        raise Malformed(f".{lacking[0]} is missing")
    if any(not tried["steps"] for tried in found.get("sizes") or ()):
        raise Malformed(".sizes has a batch without steps")
    if found["end"] == "no batch" and "detail" not in found:
        raise Malformed(".detail is missing")
    if any(not _REASONS[note["why"]] <= note.keys() for note in found.get("notes") or ()):
        raise Malformed(".notes has a note without its reason")
