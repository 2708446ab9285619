"""What to change, only where the evidence earns it, with the gain that it predicts and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.profiling.evidence import Evidence
from orchestrator.profiling.flow import Change, step_after

WORTH = 1.05
"""A predicted gain below this is not told: runs differ by as much."""


@dataclass(frozen=True)
class Ground:
    """What a rule found: the sentence that says so, and the words and places that its other parts need.

    `places`: of the pipeline's nodes, the first the one that is meant. `amount`: what the change is given.
    """

    because: str
    places: tuple[int, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    amount: float = 0.0


@dataclass(frozen=True)
class Rule:
    """A row of the table. `when` is the precondition; None: it does not hold. `after`: seconds of a step
    once changed, None where that cannot be predicted; `formula` says how, or why not. `parity`: what the
    change does to the numbers. `trial`: what `orch profile --try` imposes, None where only the script's
    author can."""

    name: str
    when: Callable[[Evidence], Ground | None]
    change: str
    after: Callable[[Evidence, Ground], float | None]
    formula: str
    parity: str
    trial: Callable[[Ground], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Advice:
    """One thing to change. `gain`: time of a step now ÷ predicted time, None where none is predicted.

    `node`: the call of the script that is meant, None where none is. `trial` as `orch profile --try` takes
    it; None where it cannot be imposed from outside. `amount`: what is asked for, in the rule's own unit
    (cores, bytes, examples); None where nothing is counted.
    """

    rule: str
    node: str | None
    because: str
    change: str
    gain: float | None
    step_now_s: float | None
    step_after_s: float | None
    formula: str
    parity: str
    trial: Mapping[str, Any] | None = None
    amount: float | None = None


def apply(rules: Sequence[Rule], evidence: Evidence) -> tuple[Advice, ...]:
    """What the rules find, the greatest predicted gain first, then what has none in the table's order.

    Nothing where the run was too short to tell."""
    if evidence.short:
        return ()
    found = [advice for rule in rules if (advice := _applied(rule, evidence)) is not None]
    return tuple(sorted(found, key=lambda advice: -(advice.gain or 0.0)))


def _applied(rule: Rule, evidence: Evidence) -> Advice | None:
    ground = rule.when(evidence)
    if ground is None:
        return None
    after = rule.after(evidence, ground)
    now = evidence.step
    gain = now / after if now and after else None
    if gain is not None and gain < WORTH:
        return None
    return Advice(
        rule=rule.name,
        node=ground.words.get("call"),
        because=ground.because,
        change=rule.change.format(**ground.words),
        gain=round(gain, 2) if gain else None,
        step_now_s=round(now, 6) if now else None,
        step_after_s=round(after, 6) if after else None,
        formula=rule.formula,
        parity=rule.parity,
        trial=rule.trial(ground) if rule.trial else None,
        amount=ground.amount or None,
    )


# ---------------------------------------------------------------- what predictions share


def unpredicted(evidence: Evidence, ground: Ground) -> None:
    """For rules whose gain nothing here measures."""
    del evidence, ground


def predicted(evidence: Evidence, change: Change, *, saved: float = 0.0) -> float | None:
    """Seconds of a step with the pipeline changed; `saved`: seconds a step of nodes that fall away.

    Work that cores must do bounds it from below. Where the run itself leaves no core idle, the step's own
    work is held up by the input's, and gains in proportion to what falls away.
    """
    if evidence.pipeline is None or evidence.compute is None or evidence.core_seconds is None:
        return None
    work = max(evidence.core_seconds, 1e-9)
    left = max(work - saved * _on_a_core(evidence), work / 10)
    held_up = evidence.crowded and evidence.alone
    compute = evidence.compute * (left / work if held_up else 1.0)
    return step_after(evidence.pipeline, change, compute, left / evidence.cores)


def _on_a_core(evidence: Evidence) -> float:
    """Of the time that a node takes by the clock, what it has a core and does not wait for one."""
    busy, waiting = evidence.usage.busy or 0.0, evidence.usage.waiting or 0.0
    return busy / (busy + waiting) if busy > 0 else 1.0
