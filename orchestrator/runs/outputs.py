"""Compare the outputs of two runs, file by file: the same bytes, the same content, or different."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from orchestrator.model import RunRecord, Verdict
from orchestrator.model.outcomes import Conclusion
from orchestrator.runs.archives import compare_archives
from orchestrator.runtime.agent.events import MARK


class Sameness(StrEnum):
    """The result of comparing two files of one name."""

    BYTES = "bytes"
    CONTENT = "content"
    """An archive with the same members, saved at another time or by another process."""
    DIFFERENT = "different"
    ONLY_FIRST = "only_first"
    ONLY_SECOND = "only_second"

    @property
    def same(self) -> bool:
        return self in (Sameness.BYTES, Sameness.CONTENT)


@dataclass(frozen=True)
class ComparedOutput:
    """`path` is relative to the run's folder. `members`: what differs in two archives.

    `weights`: whether the weights in two models of Keras are the same; None if it is not known.
    """

    path: str
    found: Sameness
    members: tuple[str, ...] = ()
    weights: bool | None = None


@dataclass(frozen=True)
class ComparedMetric:
    """A metric of both runs; None for a run that does not have it."""

    name: str
    first: Any
    second: Any

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compare_outputs(first: RunRecord, second: RunRecord) -> tuple[ComparedOutput, ...]:
    """Return every output of either run, those of the first run first, in its order.

    Files for TensorBoard are left out: their names and all their events contain the time of writing.
    """
    one, other = (
        {each["path"]: each for each in record.artifacts if MARK not in PurePosixPath(each["path"]).name}
        for record in (first, second)
    )
    paths = dict.fromkeys([*one, *other])
    return tuple(_compared(path, one, other, first, second) for path in paths)


def _compared(
    path: str, one: Mapping[str, Any], other: Mapping[str, Any], first: RunRecord, second: RunRecord
) -> ComparedOutput:
    if path not in other:
        return ComparedOutput(path, Sameness.ONLY_FIRST)
    if path not in one:
        return ComparedOutput(path, Sameness.ONLY_SECOND)
    sums = one[path].get("sha256"), other[path].get("sha256")
    if sums[0] and sums[0] == sums[1]:
        return ComparedOutput(path, Sameness.BYTES)
    archive = compare_archives(first.folder / path, second.folder / path)
    if archive is None:
        return ComparedOutput(path, Sameness.DIFFERENT)
    found = Sameness.CONTENT if archive.same else Sameness.DIFFERENT
    return ComparedOutput(path, found, archive.members, archive.weights)


def compare_metrics(first: RunRecord, second: RunRecord) -> tuple[ComparedMetric, ...]:
    """Return the metrics that differ, in the order of the first run. NaN equals NaN."""
    names = dict.fromkeys([*first.metrics, *second.metrics])
    pairs = (ComparedMetric(name, first.metrics.get(name), second.metrics.get(name)) for name in names)
    return tuple(each for each in pairs if repr(each.first) != repr(each.second))


# ---------------------------------------------------------------- together


@dataclass(frozen=True)
class ComparedResults:
    """The results of two runs. `outputs`: every output of either; `metrics`: those that differ.

    `conclusion`: IDENTICAL, DIVERGENT, or NOT COMPARED if there are no outputs, metrics or recorded tensors.
    """

    conclusion: Conclusion
    outputs: tuple[ComparedOutput, ...]
    metrics: tuple[ComparedMetric, ...]


def compare_results(first: RunRecord, second: RunRecord, verdict: Verdict) -> ComparedResults:
    """Compare outputs, metrics and recorded tensors. `verdict`: on their tensors, or on their records."""
    outputs, metrics = compare_outputs(first, second), compare_metrics(first, second)
    by_tensors = not verdict.recorded
    differ = any(not each.found.same for each in outputs) or bool(metrics)
    if differ or (by_tensors and verdict.verdict != Conclusion.IDENTICAL):
        conclusion = Conclusion.DIVERGENT
    elif outputs or first.metrics or by_tensors:
        conclusion = Conclusion.IDENTICAL
    else:
        conclusion = Conclusion.NOT_COMPARED
    return ComparedResults(conclusion, outputs, metrics)
