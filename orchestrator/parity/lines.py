"""The lines of a recording as typed values, with limits for everything that is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from orchestrator.model import Stage
from orchestrator.model.answers import Count, Like, Malformed, Most, Settings, value

_FILE = r"tensors/[0-9a-f]{1,64}(\.sample)?\.npy"

File = Annotated[str, Like(_FILE)]
Shape = Annotated[tuple[Count, ...], Most(64)]


@dataclass(frozen=True)
class Sampled:
    """The file with every `stride`-th element."""

    file: File
    stride: Count = 1


@dataclass(frozen=True)
class TensorLine:
    """One tensor of a step."""

    stage: Stage
    name: str
    dtype: Annotated[str, Most(100)]
    shape: Shape
    sha256: Annotated[str, Most(64)]
    l2: float | None = None
    file: File | None = None
    sample: Sampled | None = None


@dataclass(frozen=True)
class RecordsLine:
    """The records of one batch."""

    count: Count
    ordered: Annotated[str, Most(64)]
    multiset: Annotated[str, Like("[0-9a-f]{1,64}")]
    rows: Annotated[tuple[Annotated[str, Most(64)], ...], Most(1_000_000)] = ()


@dataclass(frozen=True)
class StepLine:
    """A completely recorded step."""

    step: Count
    tensors: Annotated[tuple[TensorLine, ...], Most(1_000_000)]
    records: Mapping[str, RecordsLine] = field(default_factory=dict)
    unread: Annotated[tuple[str, ...], Most(1_000_000)] = ()


@dataclass(frozen=True)
class MetricsLine:
    """Metrics that were reported after a step."""

    step: Count
    tensors: tuple[TensorLine, ...]


@dataclass(frozen=True)
class NamesLine:
    """The (stage, name) pairs of the fingerprints that follow, in their order."""

    names: Annotated[tuple[tuple[Stage, str], ...], Most(1_000_000)]


@dataclass(frozen=True)
class LightLine:
    """The fingerprints of one step. A norm can be any number, or none."""

    step: Count
    sums: Annotated[tuple[str, ...], Most(1_000_000)]
    norms: Annotated[tuple[Any, ...], Most(1_000_000)]


@dataclass(frozen=True)
class Status:
    """Facts about the recorder."""

    requested: Count = 0
    not_compared: tuple[Mapping[str, Annotated[str, Most(20_000)]] | None, ...] = ()
    imposed: Mapping[str, Settings] | None = None


@dataclass(frozen=True)
class End:
    """How a run ended, from exit.json."""

    reason: str | None = None
    detail: Annotated[str, Most(100_000)] | None = None


Line = StepLine | MetricsLine | NamesLine | LightLine

_SHAPES: Mapping[str, type] = {
    "step": StepLine,
    "metrics": MetricsLine,
    "light-names": NamesLine,
    "light": LightLine,
}


def read(text: str, version: int) -> tuple[list[Line], str]:
    """Parse the lines in `text`; also returns why there are none. An incomplete line ends them; unknown
    lines are skipped.
    """
    found: list[Line] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError):
            break  # incomplete because of a kill or a full disk; nothing valid follows
        if not isinstance(raw, dict):
            break
        if raw.get("v") != version:
            said = str(raw.get("v"))[:20]
            return [], f"it was recorded in format {said}, and this version of orch reads format {version}"
        shape = _SHAPES.get(str(raw.get("event")))
        try:
            if shape:
                found.append(value(shape, raw))
        except Malformed as error:
            return [], f"its line {number} is not one that the recorder writes: {error}"
    return found, ""
