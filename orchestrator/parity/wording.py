"""Describe findings in words. Pure; no verdict depends on these words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Stage
from orchestrator.parity.ladder import Alone, Detail, Finding, Fingerprints, RecordsGap, Values
from orchestrator.parity.naming import LETTERS, SideNames
from orchestrator.parity.numbers import MOST_ULPS, Gap
from orchestrator.parity.opened import FilesGap

STAGE_WORDS: Mapping[str, str] = {
    Stage.STEPS: "the number of steps",
    Stage.FILES: "the files that are read",
    Stage.BATCH: "the batch",
    Stage.INITIAL: "the initial weights",
    Stage.ACTIVATION: "a layer's output",
    Stage.LOSS: "the loss",
    Stage.GRADIENT: "a gradient",
    Stage.UPDATE: "the updated weights",
    Stage.METRICS: "a metric",
}


def located(finding: Finding, names: SideNames = LETTERS) -> str:
    """Return where two runs differ and by how much, as part of a sentence."""
    relative = finding.gap.relative if finding.gap else None
    size = f" by {relative:.2g} (relative L2)" if relative is not None else ""
    more = f", and {finding.others} more in that stage" if finding.others else ""
    return f"{STAGE_WORDS[finding.stage]}: {finding.tensor}{size}{more} ({difference(finding, names)})"


def difference(finding: Finding, names: SideNames = LETTERS) -> str:
    """Return what differs in a finding, and how many elements by how much."""
    kind = _detail(finding.detail, names) if finding.detail else ""
    size = gap_words(finding.gap, names) if finding.gap else ""
    return "; ".join(part for part in (kind, size) if part)


def _detail(detail: Detail, names: SideNames) -> str:
    match detail:
        case Values():
            return f"{detail.a} {names.in_a}, {detail.b} {names.in_b}"
        case Alone():
            alone = f"{detail.name} exists {names.inside(detail.side)} alone"
            return f"{alone}: the two programs do not compute the same things"
        case Fingerprints():
            size = f"norms differ by {detail.apart:.2g}" if detail.apart else "of equal norm"
            return f"fingerprints differ, {size}; everything up to step {detail.step - 1} is equal"
        case RecordsGap():
            return _records(detail)
        case FilesGap():
            return files_words(detail, names)


def _records(gap: RecordsGap) -> str:
    if gap.count is None:
        return "the content differs"
    if gap.kind == "order":
        return f"the same {gap.count} records in another order"
    if gap.kind == "some":
        left = gap.count_seen - gap.equal
        verb = "differs" if left == 1 else "differ"
        return f"{left} of {gap.count} records {verb}, the others are equal and in place"
    if gap.equal:
        verb = "is" if gap.equal == 1 else "are"
        return f"{gap.equal} of {gap.count} records {verb} the same, the others are not"
    return f"none of the {gap.count} records is the same"


def files_words(gap: FilesGap, names: SideNames = LETTERS) -> str:
    """Describe how the files that two programs read differ."""
    if gap.kind == "content":
        a, b = (_shown(entry or {}) for entry in (gap.a, gap.b))
        return f"{gap.name} has other content: {a} {names.in_a}, {b} {names.in_b}"
    if gap.kind == "missing":
        return f"{gap.name} was read {names.inside('A' if gap.a else 'B')} alone"
    return (
        f"the same files in another order: file {gap.position} is {gap.name} {names.in_a}, "
        f"{gap.instead} {names.in_b}"
    )


def _shown(entry: Mapping[str, Any]) -> str:
    digest = str(entry.get("sha256") or "")[:8]
    return counted(entry.get("bytes") or 0, "byte") + (f" (sha256 {digest})" if digest else "")


def gap_words(gap: Gap, names: SideNames = LETTERS) -> str:
    """Describe how many elements differ, by how many ULP, and the largest difference; for single numbers
    both values.
    """
    if gap.single and f"{gap.single[0]:.6g}" != f"{gap.single[1]:.6g}":
        return f"{gap.single[0]:.6g} {names.in_a} and {gap.single[1]:.6g} {names.in_b}"
    share = f"{gap.differing:,} of {gap.compared:,}"
    share += (
        " elements differ"
        if gap.compared == gap.elements
        else f" sampled elements (of {gap.elements:,}) differ"
    )
    near = gap.ulps is not None and gap.ulps <= MOST_ULPS
    ulps = f", at most {gap.ulps} ULP" if near else ""
    largest = f", largest absolute difference {gap.largest:.3g}" if gap.largest is not None else ""
    return share + ulps + largest + _nans(gap, names)


def _nans(gap: Gap, names: SideNames) -> str:
    a, b = gap.nans
    if not a and not b:
        return ""
    verb = "is" if a + b == 1 else "are"
    return f", {a or 'none'} {names.of_a} and {b or 'none'} {names.of_b} {verb} NaN"


# ---------------------------------------------------------------- values


def both_words(what: str, a: Any, b: Any, names: SideNames) -> str:
    """Return `what` with the value of each side."""
    return f"{what} {a} {names.in_a} and {b} {names.in_b}"


def value_words(value: Any) -> str:
    """Format a recorded value."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def setting_words(a: Any, b: Any) -> tuple[str, str]:
    """Format two settings; single-precision values as they were typed: 0.001, not 0.0010000000474974513."""
    short = [f"{value:.6g}" if isinstance(value, float) else value_words(value) for value in (a, b)]
    return (short[0], short[1]) if short[0] != short[1] else (value_words(a), value_words(b))
