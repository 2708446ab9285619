"""Read what one run recorded in <run>/observe/ as values. Changes no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.model.answers import SHORT, Malformed, parsed, value
from orchestrator.model.files import regular_bytes
from orchestrator.model.outcomes import ExitReason, Stage
from orchestrator.model.plain import plain
from orchestrator.parity import lines
from orchestrator.parity.facts import ENVIRONMENT, read_facts
from orchestrator.parity.lines import LightLine, Line, MetricsLine, NamesLine, Status, StepLine, TensorLine

FORMAT = 1
"""The version of recordings that can be read."""

_MOST_STEPS = 1 << 31
"""Maximum bytes of steps.jsonl."""

STAGES = (
    Stage.FILES,
    Stage.BATCH,
    Stage.INITIAL,
    Stage.ACTIVATION,
    Stage.LOSS,
    Stage.GRADIENT,
    Stage.UPDATE,
    Stage.METRICS,
)
"""The stages in order: a difference in one explains those in later ones. FILES has no tensors, see opened."""


@dataclass(frozen=True)
class Tensor:
    """One recorded tensor. `file` holds its bits, or `sample` every `stride`-th element; either may lack."""

    stage: Stage
    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    norm: float | None = None
    file: Path | None = None
    sample: Path | None = None
    stride: int = 1

    def equals(self, other: Tensor) -> bool:
        """Whether both are equal to the bit, including dtype and shape."""
        return (self.dtype, self.shape, self.sha256) == (other.dtype, other.shape, other.sha256)


@dataclass(frozen=True)
class Records:
    """The records of one batch: their number, and hashes in order, as a multiset, and of each record
    (shortened).
    """

    count: int
    ordered: str
    multiset: int
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One complete training step. `unread`: what could not be read without changing the numbers."""

    number: int
    tensors: tuple[Tensor, ...]
    records: Mapping[str, Records] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    def stage(self, name: Stage) -> dict[str, Tensor]:
        """Return the tensors of a stage by name, in the order of the program."""
        return {tensor.name: tensor for tensor in self.tensors if tensor.stage == name}


@dataclass(frozen=True)
class LightStep:
    """A step of which only fingerprints were recorded: (stage, name) -> exact sum of its bits, in the order
    of stages, and a norm that shows the size of a difference (None: not a number).
    """

    number: int
    sums: Mapping[tuple[Stage, str], str]
    norms: Mapping[tuple[Stage, str], float | None]


@dataclass(frozen=True)
class Recording:
    """A run's recording. If nothing was recorded, `why` is what is known of the reason.

    `light` are fingerprints of the steps after `steps`; `imposed`: the values of another run that were
    imposed on this one.
    """

    steps: tuple[Step, ...]
    requested: int = 0
    environment: Mapping[str, Any] = field(default_factory=dict)
    not_compared: tuple[str, ...] = ()
    failure: str | None = None
    why: str = ""
    light: tuple[LightStep, ...] = ()
    imposed: Mapping[str, Any] = field(default_factory=dict)


def read(run: Path) -> Recording:
    """Read the recording in `run`/observe. An incomplete last line is ignored.

    If a file is absent or invalid, `why` has the reason; an invalid one leaves no steps, so nothing is
    compared.
    """
    folder = run / "observe"
    try:
        said, status = _status(folder / "status.json")
        environment = read_facts(folder / ENVIRONMENT)
        failure = _failure(run)
    except Malformed as error:
        return Recording((), why=str(error))
    found, unreadable = _lines(folder / "steps.jsonl")
    steps = _steps(found, folder)
    notes = tuple(f"{note.get('what', '?')}: {note.get('why', '?')}" for note in status.not_compared if note)
    why = "" if steps else unreadable or _why(folder, said, notes, failure)
    return Recording(
        steps=steps,
        requested=status.requested,
        environment=environment,
        not_compared=notes,
        failure=failure,
        why=why,
        light=_light(found),
        imposed=status.imposed or {},
    )


def _status(path: Path) -> tuple[dict[str, Any], Status]:
    """Return the recorder's status, as JSON and as a Status. Raises Malformed."""
    try:
        said = _object(path)
        return said, value(Status, said)
    except Malformed as error:
        raise Malformed(f"{path.name} is not what the recorder writes: {error}") from None


def _steps(found: Sequence[Line], folder: Path) -> tuple[Step, ...]:
    """Return the complete steps, each with the metrics that were reported after it."""
    metrics: dict[int, list[TensorLine]] = {}
    for line in found:
        if isinstance(line, MetricsLine):
            metrics.setdefault(line.step, []).extend(line.tensors)
    full = (line for line in found if isinstance(line, StepLine))
    return tuple(_step(line, folder, metrics.get(line.step, [])) for line in full)


def _light(found: Sequence[Line]) -> tuple[LightStep, ...]:
    names: Sequence[tuple[Stage, str]] = ()
    steps = []
    for line in found:
        if isinstance(line, NamesLine):
            names = line.names
        elif isinstance(line, LightLine) and len(line.sums) == len(line.norms) == len(names):
            norms = [each if isinstance(each, int | float) else None for each in line.norms]
            sums = dict(zip(names, line.sums, strict=True))
            steps.append(LightStep(line.step, sums, dict(zip(names, norms, strict=True))))
    return tuple(steps)


def _lines(path: Path) -> tuple[list[Line], str]:
    try:
        return lines.read(regular_bytes(path, _MOST_STEPS).decode("utf-8", "replace"), FORMAT)
    except FileNotFoundError:
        return [], ""
    except Malformed as error:
        return [], f"{path.name} cannot be used: {error}"


def _step(line: StepLine, folder: Path, metrics: Sequence[TensorLine]) -> Step:
    return Step(
        number=line.step,
        tensors=tuple(_tensor(item, folder) for item in (*line.tensors, *metrics)),
        records={
            name: Records(each.count, each.ordered, int(each.multiset, 16), each.rows)
            for name, each in line.records.items()
        },
        unread=frozenset(line.unread),
    )


def _tensor(item: TensorLine, folder: Path) -> Tensor:
    return Tensor(
        stage=item.stage,
        name=item.name,
        dtype=item.dtype,
        shape=item.shape,
        sha256=item.sha256,
        norm=item.l2,
        file=folder / item.file if item.file else None,
        sample=folder / item.sample.file if item.sample else None,
        stride=item.sample.stride if item.sample else 1,
    )


def _failure(run: Path) -> str | None:
    """Return how the run failed; None if it did not, or nothing says so. Raises Malformed."""
    path = run / "exit.json"
    try:
        end = value(lines.End, _object(path))
    except Malformed as error:
        raise Malformed(f"{path.name} is not what a run leaves: {error}") from None
    reason = plain(end.reason or "")
    if not reason or reason in (ExitReason.COMPLETED, ExitReason.OBSERVED):
        return None
    return f"{reason} ({plain(end.detail)})" if end.detail else reason


def _why(folder: Path, status: Mapping[str, Any], notes: tuple[str, ...], failure: str | None) -> str:
    if notes:
        return "; ".join(notes)
    if failure:
        return f"the run ended before its first step was complete: {failure}"
    if status:
        return (
            "TensorFlow was imported, but no optimizer updated any weight "
            "(only Keras optimizers are watched, not hand-written updates)"
        )
    if folder.is_dir():
        return (
            "the program imported neither TensorFlow nor Keras, or its Python ignores PYTHONPATH (-I, -E, -S)"
        )
    return "it was not recorded (there is no observe folder)"


def _object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a run; {} if there is no file. Raises Malformed."""
    try:
        found = parsed(regular_bytes(path, SHORT), constants=True)
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict):
        raise Malformed("it is not an object")
    return found
