"""Decide whether a run passes the gate of its profile. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.model import RunRecord
from orchestrator.model.acceptance import Accept, Promotion, Refusal, RefusalReason
from orchestrator.model.resume import Resumed


def refusals_of(accept: Accept, record: RunRecord, current: Promotion | None) -> tuple[Refusal, ...]:
    """Return every rule that the run breaks; () if its model may replace `current`."""
    return (
        *_limits(accept, record),
        *_margins(accept, record, current),
        *_parity(accept, record),
        *_models(accept, record),
        *_resume(accept, record),
    )


def _limits(accept: Accept, record: RunRecord) -> Iterator[Refusal]:
    for name, limit in accept.metrics.items():
        value = _metric(name, record)
        if isinstance(value, Refusal):
            yield value
        elif reason := limit.broken_by(value):
            wanted = limit.low if reason is RefusalReason.TOO_LOW else limit.high
            yield Refusal(reason, name, value, wanted)


def _margins(accept: Accept, record: RunRecord, current: Promotion | None) -> Iterator[Refusal]:
    for name, margin in accept.not_worse.items():
        value = _metric(name, record)
        before = current.metrics.get(name) if current else None
        if isinstance(value, Refusal):
            if name not in accept.metrics:
                yield value
        elif current and before is not None and margin.exceeded(value, before):
            yield Refusal(RefusalReason.WORSE, name, value, margin.floor(before), current.run_id)


def _metric(name: str, record: RunRecord) -> float | Refusal:
    value = record.metrics.get(name)
    if not isinstance(value, int | float):
        return Refusal(RefusalReason.NO_METRIC, name, known=sorted(record.metrics)[:20])
    if not math.isfinite(value):
        return Refusal(RefusalReason.NOT_FINITE, name)
    return float(value)


def _parity(accept: Accept, record: RunRecord) -> Iterator[Refusal]:
    if not accept.parity:
        return
    if not record.parity:
        yield Refusal(RefusalReason.NO_PARITY)
    elif record.parity.get("verdict") not in accept.parity:
        yield Refusal(RefusalReason.PARITY, str(record.parity.get("verdict")))


def _models(accept: Accept, record: RunRecord) -> Iterator[Refusal]:
    check = record.model_check
    if not check:
        if accept.model_check:
            yield Refusal(RefusalReason.NO_MODEL)
        return
    files: Sequence[Mapping[str, Any]] = check.get("files") or [check]
    for each in files:
        path = str(each.get("path", ""))
        if each.get("not_checked"):
            if accept.model_check:
                yield Refusal(RefusalReason.MODEL_NOT_CHECKED, path)
        elif not (each.get("loaded") and each.get("equal")):
            yield Refusal(RefusalReason.MODEL_DIFFERS, path)


def _resume(accept: Accept, record: RunRecord) -> Iterator[Refusal]:
    if not accept.resume_proof:
        return
    if not record.resume_proof:
        yield Refusal(RefusalReason.NO_RESUME_PROOF)
    elif record.resume_proof.get("verdict") != Resumed.EXACT:
        yield Refusal(RefusalReason.RESUME, str(record.resume_proof.get("verdict")))
