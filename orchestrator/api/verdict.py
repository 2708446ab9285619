"""Return the record of an ended run, or raise RunFailed with what to do next."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.api.collect import LOG
from orchestrator.api.reading import of_profile
from orchestrator.api.undeclared_words import command, sentence
from orchestrator.errors import ProfileError, ResultsLost, failure_of
from orchestrator.model import RunRecord
from orchestrator.profile import load

_NAMED = 5
_TAIL = 16 << 10
"""Bytes of what a failed run printed last."""


def judged(record: RunRecord, profile: str) -> RunRecord:
    """The record of a run that succeeded; any other is raised, with the record beside it."""
    if record.succeeded:
        return complete(record)
    came_home = "pull_s" in record.timings
    gone = record.exit["reason"] in ("preempted", "deadline") or not came_home
    logged = "Its record and what it printed are" if (record.folder / LOG).exists() else "Its record alone is"
    left = "Its record, log and files are" if came_home else logged
    if record.not_fetched:
        left = f"All but {len(record.not_fetched)} of its paths, which stayed on the machine, are"
    machine = "The machine is gone." if gone else "The machine runs on."
    unsent, declare = _unsent(record, Path(profile))
    what_next = declare or _what_next(record)
    error = failure_of(record.exit["reason"])(
        f"{record.run_id} ended: {record.exit.get('detail') or record.exit['reason']}{unsent}",
        exists=f"{left} in {record.folder}. {machine}",
        next_command=f"orch down && orch up {profile} && orch train" if gone else what_next,
    )
    error.record = record
    raise error


def complete(record: RunRecord) -> RunRecord:
    """The record of a run whose results are here; ResultsLost, with the record, where some stayed there."""
    missing = record.missing_results
    if not missing:
        return record
    error = ResultsLost(
        f"{record.run_id}: {len(missing)} of its results did not come home: {_listed(missing)}.",
        exists=f"Everything else is in {record.folder}. The machine still has them, and runs on.",
        next_command=f"orch pull --again {record.run_id}    # once that is settled there; or: orch down",
    )
    error.record = record
    raise error


def _listed(missing: Sequence[Mapping[str, Any]]) -> str:
    first = "; ".join(f"{each['path']} ({each['detail']})" for each in missing[:_NAMED])
    return f"{first}; and {len(missing) - _NAMED} more" if len(missing) > _NAMED else first


def _unsent(record: RunRecord, profile: Path) -> tuple[str, str]:
    """(what the code names, lies here and was not sent, the command that declares it), where a failed run
    printed a name of it at its end; else two empty texts."""
    if record.exit["reason"] != "failed":
        return "", ""
    try:
        with open(record.folder / LOG, "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
            said = log.read().decode(errors="replace")
        found = [each for each in of_profile(load(profile)) if each.name in said]
    except (OSError, ProfileError):
        return "", ""
    if not found:
        return "", ""
    return (
        f"\n{sentence(found, 'names')} The machine has none of it.",
        f"{command(found, profile)} && orch train",
    )


def _what_next(record: RunRecord) -> str:
    if record.exit["reason"] == "lost":  # its supervisor is; the job itself may go on, unwatched
        return f"orch cancel {record.run_id} && orch pull {record.run_id}    # then orch down"
    return f"orch logs {record.run_id}    # then orch down"
