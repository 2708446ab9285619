"""Two runs side by side: facts, common charts, time, and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.model import RunRecord
from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Conclusion
from orchestrator.parity.recorded import ANOTHER_JOB
from orchestrator.parity.rungs import Rung
from orchestrator.report.outputs import difference_words
from orchestrator.report.page import safe
from orchestrator.report.page.metrics import charts_of
from orchestrator.report.page.model import (
    Align,
    Block,
    Charts,
    Column,
    Headline,
    Row,
    Section,
    State,
    Table,
)
from orchestrator.report.page.parity import STATES
from orchestrator.report.page.repeat import revision_line
from orchestrator.report.page.time import parts_of
from orchestrator.report.page.words import digits
from orchestrator.report.units import duration, money, share, size
from orchestrator.report.where import START_UP, startup_share
from orchestrator.runs.details import RunDetails
from orchestrator.runs.outputs import ComparedOutput, ComparedResults, Sameness

_METRICS = 40
_FILES = 100
_SAID: Mapping[str, str] = {
    Conclusion.IDENTICAL: "the same: every tensor of the recorded steps is equal to the last bit",
    Conclusion.EQUIVALENT: "different by rounding only",
    Conclusion.DIVERGENT: "not the same",
    Conclusion.UNSTABLE: "not comparable, because the script differs from itself",
}


@dataclass(frozen=True)
class Comparison:
    """The verdict on both runs, as in run.json; `rungs` if both were recorded; what `rerun` says of their
    results.
    """

    verdict: Mapping[str, Any]
    rungs: tuple[Rung, ...] = ()
    results: ComparedResults | None = None


def headline_of(names: tuple[str, str], compared: Comparison) -> Headline:
    found = safe.mapping(compared.verdict)
    verdict = safe.line(found.get("verdict"), 40)
    said = _SAID.get(verdict)
    tensors = _tensors_said(verdict, found)
    if compared.results is not None and tensors:
        by_results = _by_results(names, compared.results, tensors)
        if by_results:
            return by_results
    if found.get("recorded") and verdict == Conclusion.IDENTICAL:
        said = f"the same job with the same metrics; {tensors}"
    if said is None:
        text = (
            f"No tensors of both {names[0]} and {names[1]} were recorded; what their records hold is below."
        )
        return Headline(State.NOTE, "Not compared tensor by tensor", text)
    cause = safe.line(found.get("cause"), 400).rstrip(".") or _differing(found)
    why = f": {cause[:1].lower()}{cause[1:]}" if cause and verdict != Conclusion.IDENTICAL else ""
    return Headline(STATES.get(verdict, State.NOTE), verdict, f"{names[0]} and {names[1]} are {said}{why}.")


_NO_TENSORS = "no tensors of both were recorded"
_BY_RESULTS: Mapping[str, str] = {
    Conclusion.IDENTICAL: "every tensor of the recorded steps is equal to the last bit",
    Conclusion.NOT_COMPARED: _NO_TENSORS,
}
"""Verdicts beside which the results decide, and what the tensors say then."""


def _tensors_said(verdict: str, found: Mapping[str, Any]) -> str | None:
    """What is known of the tensors, if the results decide beside it; None if the verdict says it all."""
    recorded = list(safe.mappings(found.get("recorded")))
    if not recorded:
        return _BY_RESULTS.get(verdict)
    inputs = [each for each in recorded if each.get("equal") is False and each.get("name") in ANOTHER_JOB]
    return None if inputs else _NO_TENSORS


def _by_results(names: tuple[str, str], results: ComparedResults, tensors: str) -> Headline | None:
    """Return the headline for runs whose files or metrics tell whether they are the same, as `rerun` does;
    None if there are none.
    """
    conclusion = str(results.conclusion)
    other = [each for each in results.outputs if not each.found.same]
    if other or results.metrics:
        said = [_files_that_differ(results, other)] if other else []
        said += [_metrics_that_differ(results)] if results.metrics else []
        text = f"{names[0]} and {names[1]} are not the same: {'; '.join(said)}; {tensors}."
        return Headline(State.BAD, conclusion, text)
    if results.conclusion != Conclusion.IDENTICAL or not results.outputs:
        return None
    count = len(results.outputs)
    same = (
        f"all {count} output files have the same content"
        if count > 1
        else "the output file has the same content"
    )
    return Headline(State.OK, conclusion, f"{names[0]} and {names[1]} are the same: {tensors}; {same}.")


def _files_that_differ(results: ComparedResults, other: Sequence[ComparedOutput]) -> str:
    verb = "differs" if len(other) == 1 else "differ"
    first = safe.line(f"{other[0].path}: {difference_words(other[0])}", 400)
    which = "" if len(other) == 1 else "the first "
    return f"{len(other)} of {counted(len(results.outputs), 'output file')} {verb} ({which}{first})"


def _metrics_that_differ(results: ComparedResults) -> str:
    count = len(results.metrics)
    name = safe.line(results.metrics[0].name, 80)
    return f"the metric {name} differs" if count == 1 else f"{count} metrics differ, first the metric {name}"


def _differing(found: Mapping[str, Any]) -> str:
    """Return the facts in which two records differ."""
    names = [
        safe.line(each.get("name"), 60)
        for each in safe.mappings(found.get("recorded"))
        if each.get("equal") is False
    ]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"they differ in {', '.join(names[:4])}{more}" if names else ""


def facts(a: RunDetails, b: RunDetails) -> Section:
    rows = tuple(
        _row(name, left, right) for name, left, right in [*_facts(a, b), *_metrics(a.record, b.record)]
    )
    columns = (Column("fact"), Column(safe.line(a.record.run_id, 60)), Column(safe.line(b.record.run_id, 60)))
    return Section("facts", "Side by side", (Table(columns, rows, states=True),))


def _row(name: str, left: str, right: str) -> Row:
    state = State.NONE if not left or not right else State.OK if left == right else State.NOTE
    return Row((name, left or "not recorded", right or "not recorded"), state)


def _facts(a: RunDetails, b: RunDetails) -> Iterator[tuple[str, str, str]]:
    pairs = [_told(each) for each in (a, b)]
    for name in pairs[0]:
        if pairs[0][name] or pairs[1][name]:
            yield name, pairs[0][name], pairs[1][name]


def _told(details: RunDetails) -> dict[str, str]:
    record = details.record
    code, data, stack, machine, cost, seen = (
        safe.mapping(each)
        for each in (record.code, record.data, record.stack, record.machine, record.cost, record.profile)
    )
    usd = safe.number(cost.get("run_usd", cost.get("usd")))
    wall, speed, wait = (safe.number(seen.get(key)) for key in ("wall_s", "steps_per_s", "input_wait"))
    peak = safe.number(seen.get("peak_memory"))
    return {
        "end": safe.line(record.exit.get("reason"), 40).replace("_", " "),
        "command": safe.line(" ".join(safe.line(word, 200) for word in record.command or ()), 300),
        "code": safe.line(code.get("digest"), 64)[:12],
        "git": revision_line(code),
        "data": safe.line(data.get("digest"), 64)[:12],
        "packages": safe.line(stack.get("digest"), 64)[:12],
        "lock": safe.line(stack.get("lock"), 64)[:12],
        "Python": safe.line(stack.get("python"), 40),
        "machine": safe.line(machine.get("instance_type"), 60) or ("" if machine else "this computer"),
        "time": duration(wall) if wall is not None else "",
        "steps a second": f"{speed:.3g}" if speed else "",
        "waiting for input": share(wait) if wait is not None else "",
        "peak memory": size(peak) if peak else "",
        "limited by": START_UP if startup_share(seen) else safe.line(seen.get("limited_by"), 40),
        "cost": money(usd) if usd is not None else "",
        "parity with here": safe.line(safe.mapping(record.parity).get("verdict"), 40),
    }


def _metrics(a: RunRecord, b: RunRecord) -> Iterator[tuple[str, str, str]]:
    left, right = (
        {
            safe.line(name, 80): value
            for name, each in safe.mapping(one.metrics).items()
            if (value := safe.number(each)) is not None
        }
        for one in (a, b)
    )
    for name in list(dict.fromkeys([*left, *right]))[:_METRICS]:
        one, other = left.get(name), right.get(name)
        yield (
            f"metric {name}",
            "" if one is None else digits(one, 9),
            "" if other is None else digits(other, 9),
        )


def curves(a: RunDetails, b: RunDetails) -> Section | None:
    names = [safe.line(each.record.run_id, 40) for each in (a, b)]
    charts = charts_of([(names[0], a.curves), (names[1], b.curves)])
    return Section("metrics", "Loss and metrics", (Charts(charts),)) if charts else None


def times(a: RunDetails, b: RunDetails) -> Section | None:
    blocks: list[Block] = [
        parts_of(each.timeline, f"{safe.line(each.record.run_id, 60)} · {duration(each.timeline.seconds)}")
        for each in (a, b)
        if each.timeline
    ]
    return Section("time", "Where each second went", tuple(blocks)) if blocks else None


def results(a: RunDetails, b: RunDetails, compared: ComparedResults | None = None) -> Section | None:
    left, right = ({safe.line(f.get("path"), 300): f for f in one.record.artifacts[:2_000]} for one in (a, b))
    found = {safe.line(each.path, 300): each for each in compared.outputs} if compared else {}
    rows = [
        _file(path, left.get(path), right.get(path), found.get(path))
        for path in list(dict.fromkeys([*left, *right]))
    ]
    if not rows:
        return None
    columns = (
        Column("file", Align.CODE),
        Column(safe.line(a.record.run_id, 60), Align.CODE),
        Column(safe.line(b.record.run_id, 60), Align.CODE),
    )
    lead = "Files of other bytes may hold the same numbers: formats keep times, and logs do."
    more = f"{len(rows) - _FILES:,} more are in the records." if len(rows) > _FILES else ""
    return Section("results", "Results", (Table(columns, tuple(rows[:_FILES]), "", more, states=True),), lead)


def _file(
    path: str,
    one: Mapping[str, Any] | None,
    other: Mapping[str, Any] | None,
    found: ComparedOutput | None,
) -> Row:
    sums = [safe.line(each.get("sha256"), 64)[:12] if each else "" for each in (one, other)]
    if not all(sums):
        return Row((path, sums[0] or "absent", sums[1] or "absent"), State.NOTE)
    if found is None or (found.found != Sameness.CONTENT and not found.members):
        return _row(path, *sums)
    same = found.found == Sameness.CONTENT
    words = "the same content" if same else safe.line(difference_words(found), 400)
    return Row((path, sums[0], f"{sums[1]}: {words}"), State.OK if same else State.NOTE)
