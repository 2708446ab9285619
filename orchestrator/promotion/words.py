"""Why a run's model was not accepted, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.model.acceptance import Refusal, RefusalReason
from orchestrator.model.plain import plain

_NAMED = 5


def refusal_from(value: Mapping[str, Any]) -> Refusal:
    """Return the refusal that an object of run.json describes."""
    fields = {name: value[name] for name in Refusal.__dataclass_fields__ if name in value}
    return Refusal(**{**fields, "reason": RefusalReason(value["reason"])})


def refusals_text(refusals: Sequence[Refusal]) -> str:
    """Return the first few refusals in one line."""
    shown = "; ".join(refusal_text(each) for each in refusals[:_NAMED])
    more = len(refusals) - _NAMED
    return f"{shown}; and {more} more" if more > 0 else shown


def refusal_text(refusal: Refusal) -> str:
    return plain(_TEXTS[refusal.reason].format(
        subject=refusal.subject,
        found=_number(refusal.found),
        wanted=_number(refusal.wanted),
        against=refusal.against,
        known=", ".join(refusal.known[:_NAMED]) or "none",
    ))  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


_TEXTS = {
    RefusalReason.TOO_LOW: "{subject} is {found}, and the least is {wanted}",
    RefusalReason.TOO_HIGH: "{subject} is {found}, and the most is {wanted}",
    RefusalReason.WORSE: "{subject} is {found}, worse than {wanted}, the limit that {against} sets",
    RefusalReason.NO_METRIC: "the run wrote no metric {subject} (its metrics: {known})",
    RefusalReason.NOT_FINITE: "{subject} is not a finite number",
    RefusalReason.PARITY: "the parity verdict is {subject}",
    RefusalReason.NO_PARITY: "no parity was measured (--local-parity)",
    RefusalReason.MODEL_DIFFERS: "{subject} does not load here or does not predict the same",
    RefusalReason.MODEL_NOT_CHECKED: "{subject} was not checked",
    RefusalReason.NO_MODEL: "the run left no model to check",
    RefusalReason.RESUME: "the resume proof says {subject}",
    RefusalReason.NO_RESUME_PROOF: "resuming was not proven (--resume-proof)",
}
