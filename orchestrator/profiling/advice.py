"""Advice on what to change, given only if the evidence supports it, with its predicted gain and how that
is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.profiling.evidence import Evidence
from orchestrator.profiling.flow import Change, step_after

WORTH = 1.05
"""A smaller predicted gain is not reported: runs differ by as much."""


@dataclass(frozen=True)
class Ground:
    """What a rule found: `because`, a sentence, and the words and places that the rule's other parts need.

    `places`: nodes of the pipeline; the first is the one to change. `amount`: the size of the change.
    """

    because: str
    places: tuple[int, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    amount: float = 0.0


@dataclass(frozen=True)
class Rule:
    """A row of the table. `when`: the precondition; it returns None if it does not hold. `after`: seconds
    of a step after the change, None if that cannot be predicted; `formula` says how, or why not.
    `parity`: the effect of the change on the training's numbers. `trial`: what `orch profile --try`
    imposes, None if only the script's author can make the change.
    """

    name: str
    when: Callable[[Evidence], Ground | None]
    change: str
    after: Callable[[Evidence, Ground], float | None]
    formula: str
    parity: str
    trial: Callable[[Ground], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Advice:
    """One thing to change. `gain`: time of a step now ÷ predicted time, None if none is predicted.

    `node`: the call in the script that is to be changed, None if there is none. `trial`: as `orch profile
    --try` takes it; None if the change cannot be imposed from outside. `amount`: what is requested, in the
    rule's own unit (cores, bytes, examples); None if nothing is counted.
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
    """Return the advice of all rules that apply, the greatest predicted gain first, then advice without a
    prediction in the table's order.

    Return () if the run was too short.
    """
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
    """Predict nothing, for rules whose gain is not measured."""
    del evidence, ground


def predicted(evidence: Evidence, change: Change, *, saved: float = 0.0) -> float | None:
    """Return the seconds of a step with the pipeline changed; `saved`: seconds a step of nodes that are
    removed.

    The work that cores must do is a lower bound. If the run itself leaves no core idle, input processing
    slows the step's own work, which then gains in proportion to what is removed.
    """
    if evidence.pipeline is None or evidence.compute is None or evidence.core_seconds is None:
        return None
    work = max(evidence.core_seconds, 1e-9)
    left = max(work - saved * _on_a_core(evidence), work / 10)
    held_up = evidence.crowded and evidence.alone
    compute = evidence.compute * (left / work if held_up else 1.0)
    return step_after(evidence.pipeline, change, compute, left / evidence.cores)


def _on_a_core(evidence: Evidence) -> float:
    """Return the share of a node's wall time in which it has a core and does not wait for one."""
    busy, waiting = evidence.usage.busy or 0.0, evidence.usage.waiting or 0.0
    return busy / (busy + waiting) if busy > 0 else 1.0
