"""What was said of a scenario against what should have been, and the table of all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.model import Verdict
from tests.parity.scenarios.model import Scenario


@dataclass(frozen=True)
class Row:
    """One scenario judged. `acts`: the planted difference acts on this computer. `accused`: a difference was
    laid at somebody's door. `misses` says what is wrong with the verdict, "" where it is right."""

    name: str
    planted: bool
    acts: bool
    accused: bool
    verdict: str
    stage: str
    confirmed: bool
    cause: str
    misses: str

    @property
    def right(self) -> bool:
        return not self.misses


def judge(scenario: Scenario, verdict: Verdict, *, confirming: bool) -> Row:
    """`confirming`: counterfactuals were run, so that instability and confirmation can be expected."""
    acts = not (scenario.local and verdict.verdict == "IDENTICAL")
    misses = _misses(scenario, verdict, confirming and scenario.confirm) if acts else ()
    return Row(
        name=scenario.name,
        planted=not scenario.is_innocent,
        acts=acts,
        accused=verdict.verdict in ("DIVERGENT", "UNSTABLE") or verdict.confirmed,
        verdict=verdict.verdict,
        stage=verdict.divergence.stage if verdict.divergence else "",
        confirmed=verdict.confirmed,
        cause=verdict.cause or "",
        misses="; ".join(misses),
    )


def _misses(scenario: Scenario, verdict: Verdict, confirming: bool) -> Iterable[str]:
    expected = scenario.expected
    unstable = "UNSTABLE" in expected.verdicts and not confirming  # which two recordings alone do not tell
    verdicts = (*expected.verdicts, "DIVERGENT") if unstable else expected.verdicts
    if verdict.verdict not in verdicts:
        yield f"verdict {verdict.verdict}, not {' or '.join(expected.verdicts)}"
    stage = verdict.divergence.stage if verdict.divergence else None
    if expected.stages and stage not in expected.stages:
        yield f"stage {stage}, not {' or '.join(expected.stages)}"
    for pattern in () if unstable else expected.cause:
        if not re.search(pattern, verdict.cause or ""):
            yield f"cause {verdict.cause!r} does not say {pattern}"
    wanted = expected.confirmed if confirming else None
    if wanted is not None and verdict.confirmed != wanted:
        yield f"{'not ' if wanted else ''}confirmed: {verdict.cause!r} {verdict.untried or ''}"
    if scenario.is_innocent and verdict.confirmed:
        yield f"accuses the innocent: {verdict.cause}"


def sums(rows: Sequence[Row]) -> str:
    """Precision and recall over all rows, and what was missed once more."""
    planted = [row for row in rows if row.planted]
    acting = [row for row in planted if row.acts]
    accused = [row for row in rows if row.accused]
    confirmed = [row for row in rows if row.confirmed]
    lines = [
        f"planted     {len(planted)}, of which {len(acting)} act on this computer",
        f"controls    {len(rows) - len(planted)}",
        f"recall      {_share(acting)}   of what was planted is named: verdict, stage, cause",
        f"precision   {_share(accused)}   of what was accused was planted, and is named",
        f"confirmed   {_share(confirmed)}   of what was confirmed is true",
        f"by stage    {_by_stage(acting)}",
    ]
    missed = [line(row) for row in rows if not row.right]
    return "\n".join(["", *missed, "", *lines])


def _by_stage(rows: Sequence[Row]) -> str:
    """Of each stage in which something was found: how many are right, and how many there are."""
    places = Counter(row.stage or row.verdict for row in rows)
    right = Counter(row.stage or row.verdict for row in rows if row.right)
    return ", ".join(f"{place} {right[place]}/{count}" for place, count in places.items())


def _share(rows: Sequence[Row]) -> str:
    right = sum(row.right for row in rows)
    return f"{right}/{len(rows)}" + (f" = {right / len(rows):.2f}" if rows else "")


def line(row: Row) -> str:
    """A row of the table."""
    mark = "ok  " if row.right else "MISS"
    sure = "confirmed" if row.confirmed else ""
    return (
        f"{mark} {row.name:46} {row.verdict:12} {row.stage:10} {sure:9}  {row.misses or row.cause}".rstrip()
    )
