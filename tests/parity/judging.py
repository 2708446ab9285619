"""What was said of a scenario against what should have been, and the table of all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.model import Verdict
from tests.parity.scenarios import batches, controls, several, steps
from tests.parity.scenarios.model import Scenario

PLANTED: tuple[Scenario, ...] = (*batches.SCENARIOS, *steps.SCENARIOS, *several.SCENARIOS)
CONTROLS: tuple[Scenario, ...] = controls.SCENARIOS


@dataclass(frozen=True)
class Judged:
    """`misses` says in words what is wrong with the verdict; empty: it is right."""

    scenario: Scenario
    verdict: Verdict
    misses: tuple[str, ...]

    @property
    def right(self) -> bool:
        return not self.misses

    @property
    def accuses(self) -> bool:
        """Whether a difference is laid at somebody's door."""
        return self.verdict.verdict in ("DIVERGENT", "UNSTABLE") or self.verdict.confirmed


def judge(scenario: Scenario, verdict: Verdict, *, confirming: bool) -> Judged:
    """`confirming`: counterfactuals were run, so that instability and confirmation can be expected."""
    if scenario.by_processor and verdict.verdict == "IDENTICAL":
        return Judged(scenario, verdict, ())
    return Judged(scenario, verdict, tuple(_misses(scenario, verdict, confirming and scenario.confirm)))


def _misses(scenario: Scenario, verdict: Verdict, confirming: bool) -> Iterable[str]:
    expected = scenario.expected
    verdicts = expected.verdicts
    if not confirming and "UNSTABLE" in verdicts:
        verdicts = (*verdicts, "DIVERGENT")  # from two recordings alone nobody can tell
    if verdict.verdict not in verdicts:
        yield f"verdict {verdict.verdict}, not {' or '.join(expected.verdicts)}"
    stage = verdict.divergence.stage if verdict.divergence else None
    if expected.stages and stage not in expected.stages:
        yield f"stage {stage}, not {' or '.join(expected.stages)}"
    said = f"{verdict.cause or ''} {verdict.detail if verdict.verdict == 'NOT COMPARED' else ''}"
    if "UNSTABLE" not in expected.verdicts or confirming:
        for pattern in expected.cause:
            if not re.search(pattern, said):
                yield f"cause {verdict.cause!r} names no {pattern}"
    if confirming and expected.confirmed is not None and verdict.confirmed != expected.confirmed:
        yield "not confirmed" if expected.confirmed else "confirmed"
    if scenario in CONTROLS and verdict.confirmed:
        yield f"accuses the innocent: {verdict.cause}"


def table(judged: Sequence[Judged]) -> str:
    """One line a scenario, then precision and recall over all."""
    lines = [_line(one) for one in judged]
    planted = [one for one in judged if one.scenario not in CONTROLS]
    effective = [
        one for one in planted if not (one.scenario.by_processor and one.verdict.verdict == "IDENTICAL")
    ]
    accusing = [one for one in judged if one.accuses or one in effective]
    found = sum(one.right for one in effective)
    confirmed = [one for one in judged if one.verdict.confirmed]
    lines += [
        "",
        f"planted     {len(planted)}, of which {len(effective)} act on this processor",
        f"controls    {len(judged) - len(planted)}",
        f"recall      {found}/{len(effective)} = {_share(found, len(effective))}   named as planted",
        f"precision   {sum(one.right for one in accusing)}/{len(accusing)} = "
        f"{_share(sum(one.right for one in accusing), len(accusing))}   of what was accused",
        f"confirmed   {len(confirmed)}, wrongly {sum(not one.right for one in confirmed)}",
    ]
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def _line(one: Judged) -> str:
    stage = one.verdict.divergence.stage if one.verdict.divergence else ""
    mark = "ok  " if one.right else "MISS"
    sure = "confirmed" if one.verdict.confirmed else ""
    why = f"  {'; '.join(one.misses)}" if one.misses else ""
    return f"{mark} {one.scenario.name:48} {one.verdict.verdict:12} {stage:10} {sure:9}{why}".rstrip()
