"""Read metrics and timings from the fetched files of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.model import AttemptFacts, RunRecord
from orchestrator.runs import collect, record_file


def read_metrics(record: RunRecord) -> RunRecord:
    """Add metrics and timings from its files to a record, and write it to `run.json`."""
    from orchestrator.sizing import rightsize

    seen = rightsize.profile_of_run(record.folder, record.machine)
    told = replace(
        record, metrics=collect.metrics(record), profile=seen, attempts=_with_steps(record.attempts, seen)
    )
    record_file.write(told)
    return told


def is_finished(record: RunRecord) -> RunRecord:
    """Return the record. If orch was interrupted before it read the files of a local run, they are
    read now.
    """
    return read_metrics(record) if record.unchecked else record


def _with_steps(attempts: Sequence[AttemptFacts], seen: Mapping[str, Any] | None) -> Sequence[AttemptFacts]:
    """Return the attempts, with the number of trained steps of the last one if it is known."""
    steps = (seen or {}).get("steps")
    if not attempts or not isinstance(steps, int) or isinstance(steps, bool):
        return attempts
    last: AttemptFacts = {**attempts[-1], "steps": steps}
    return [*attempts[:-1], last]
