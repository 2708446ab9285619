"""Read metrics and timings from the fetched files of a run."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.api import collect, rightsize
from orchestrator.model import RunRecord


def examined(record: RunRecord) -> RunRecord:
    """Add metrics and timings from its files to a record, and write it to `run.json`."""
    told = replace(
        record,
        metrics=collect.metrics(record),
        profile=rightsize.profile_of_run(record.folder, record.machine),
    )
    collect.write(told)
    return told


def finished(record: RunRecord) -> RunRecord:
    """The record of a run that is here; its files are read now where orch may have been ended before."""
    return examined(record) if record.unchecked else record
