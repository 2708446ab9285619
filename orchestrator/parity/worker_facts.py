"""The facts in which workers differ from the single process, grouped by possible cause. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.model.outcomes import Stage
from orchestrator.model.workers import WorkerCause, WorkerFact
from orchestrator.parity.changes import Change, Facts, changes

_TOPICS = {
    "seed": WorkerCause.SEED,
    "data": WorkerCause.DATA,
    "source": WorkerCause.CODE,
    "isa": WorkerCause.PROCESSOR,
    "threads": WorkerCause.PROCESSOR,
    "cores": WorkerCause.PROCESSOR,
    "devices": WorkerCause.PROCESSOR,
    "onednn": WorkerCause.PROCESSOR,
}
_WITHOUT_EFFECT = ("paths", "folder", "host", "order", "cache", "start", "command", "stdin")
"""Topics that differ between machines without any effect, or that are no fact of one worker."""

_OF_WORKERS = ("TF_CONFIG", "replicas")
"""Facts that differ because a process is a worker."""

_RANDOM = (WorkerCause.SEED, WorkerCause.DATA, WorkerCause.CODE, WorkerCause.SETTINGS, WorkerCause.PACKAGES)
_NUMERIC = (WorkerCause.CODE, WorkerCause.SETTINGS, WorkerCause.PACKAGES, WorkerCause.PROCESSOR)
_EXPLAINS: Mapping[Stage, Sequence[WorkerCause]] = {
    Stage.INITIAL: _RANDOM,
    Stage.BATCH: _RANDOM,
    Stage.GRADIENT: _NUMERIC,
    Stage.UPDATE: _NUMERIC,
}
"""Causes whose first effect can be at a stage, the most probable first."""


def worker_facts(rank: int, single: Facts, worker: Facts) -> tuple[WorkerFact, ...]:
    """Return every difference that may affect results, packages first."""
    found = [fact for change in changes(single, worker) for fact in _fact(rank, change)]
    return (*_packages(rank, single, worker), *found)


def explain(stage: Stage, facts: Sequence[WorkerFact]) -> tuple[WorkerCause, tuple[WorkerFact, ...]]:
    """Return the likeliest cause of a difference that begins at `stage`, and its facts; UNKNOWN if none."""
    for cause in _EXPLAINS[stage]:
        chosen = tuple(fact for fact in facts if fact.cause is cause)
        if chosen:
            return cause, chosen
    return WorkerCause.UNKNOWN, ()


def _fact(rank: int, change: Change) -> Iterator[WorkerFact]:
    if change.topic in _WITHOUT_EFFECT or change.name in _OF_WORKERS:
        return
    cause = _TOPICS.get(change.topic, WorkerCause.SETTINGS)
    yield WorkerFact(rank, cause, change.topic, change.name, _word(change.a), _word(change.b))


def _packages(rank: int, single: Facts, worker: Facts) -> Iterator[WorkerFact]:
    left = {"python": single.get("python"), **single.get("versions", {})}
    right = {"python": worker.get("python"), **worker.get("versions", {})}
    for name in sorted(left.keys() & right.keys()):
        if left[name] != right[name] and left[name] and right[name]:
            yield WorkerFact(rank, WorkerCause.PACKAGES, "packages", name, left[name], right[name])


def _word(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    if isinstance(value, Mapping):
        return str(value["sha256"])[:12] if value.get("sha256") else None
    return None if value is None or isinstance(value, list) else str(value)
