"""Read metrics and timings from the fetched files of a run."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model import RunRecord
from orchestrator.runs import collect
from orchestrator.sizing import rightsize


def read_metrics(record: RunRecord) -> RunRecord:
    """Add metrics and timings from its files to a record, and write it to `run.json`."""
    told = replace(
        record,
        metrics=collect.metrics(record),
        profile=rightsize.profile_of_run(record.folder, record.machine),
    )
    collect.write(told)
    return told


def is_finished(record: RunRecord) -> RunRecord:
    """The record of a run that is here; its files are read now where orch may have been ended before."""
    return read_metrics(record) if record.unchecked else record
