"""Compare the outputs of two runs, file by file: the same bytes, the same content, or different."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
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

    Files for TensorBoard are left out: their names and all their events contain the time of writing. So are
    archives of which only the bytes differ and one is gone, because the second run wrote over it.
    """
    one, other = (
        {each["path"]: each for each in record.artifacts if MARK not in PurePosixPath(each["path"]).name}
        for record in (first, second)
    )
    paths = dict.fromkeys([*one, *other])
    compared = (_compared(path, one, other, first, second) for path in paths)
    return tuple(each for each in compared if each is not None)


def _compared(
    path: str, one: Mapping[str, Any], other: Mapping[str, Any], first: RunRecord, second: RunRecord
) -> ComparedOutput | None:
    if path not in other:
        return ComparedOutput(path, Sameness.ONLY_FIRST)
    if path not in one:
        return ComparedOutput(path, Sameness.ONLY_SECOND)
    sums = one[path].get("sha256"), other[path].get("sha256")
    if sums[0] and sums[0] == sums[1]:
        return ComparedOutput(path, Sameness.BYTES)
    places = first.folder / path, second.folder / path
    archive = compare_archives(*places)
    if archive is not None and places[0].resolve() == places[1].resolve():
        return None
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

    `conclusion`: IDENTICAL, DIVERGENT, or NOT COMPARED if what there is does not tell.
    """

    conclusion: Conclusion
    outputs: tuple[ComparedOutput, ...]
    metrics: tuple[ComparedMetric, ...]


def compare_files_and_metrics(first: RunRecord, second: RunRecord) -> ComparedResults:
    """Compare what two runs left, whatever is known of their tensors.

    What only one of them has is a difference between two runs on machines, whose results are listed alike. A
    run of `orch record` lists other files, and no metrics.
    """
    outputs, metrics = compare_outputs(first, second), compare_metrics(first, second)
    lone = [each for each in outputs if each.found in (Sameness.ONLY_FIRST, Sameness.ONLY_SECOND)]
    alone = [each for each in metrics if each.first is None or each.second is None]
    other = sum(not each.found.same for each in outputs) - len(lone) + len(metrics) - len(alone)
    on_machines = first.machine is not None and second.machine is not None
    if other or ((lone or alone) and on_machines):
        conclusion = Conclusion.DIVERGENT
    elif (outputs or first.metrics) and not lone and not alone:
        conclusion = Conclusion.IDENTICAL
    else:
        conclusion = Conclusion.NOT_COMPARED
    return ComparedResults(conclusion, outputs, metrics)


def compare_results(first: RunRecord, second: RunRecord, verdict: Verdict) -> ComparedResults:
    """Compare outputs, metrics and recorded tensors. `verdict`: that of `compare`, on their tensors, or on
    their records, which includes outputs and metrics.
    """
    found = compare_files_and_metrics(first, second)
    if verdict.recorded:
        return replace(found, conclusion=verdict.verdict)
    same_so_far = verdict.verdict in (Conclusion.IDENTICAL, Conclusion.NOT_COMPARED)
    if found.conclusion != Conclusion.DIVERGENT and same_so_far:
        return replace(found, conclusion=verdict.verdict)
    return replace(found, conclusion=Conclusion.DIVERGENT)
