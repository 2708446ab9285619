"""Return the record of an ended run, or raise RunFailed with what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import ProfileError, ResultsLost
from orchestrator.model import NotWritten, Refused, RunRecord, Unfetched
from orchestrator.model.files import last_bytes
from orchestrator.model.outcomes import ExitReason, failure_of
from orchestrator.profile import load
from orchestrator.runs.collect import LOG

_NAMED = 5
_GIB = 1 << 30
_CAN_COME = frozenset(reason for reason in Refused if reason.can_come)
_TAIL = 16 << 10
"""Bytes of the end of a failed run's output."""


def raise_for_outcome(
    record: RunRecord, profile: str, *, leased: bool = True, again: str = "orch train", up: str = ""
) -> RunRecord:
    """Return the record of a run that succeeded. For any other run, raise RunFailed with the record.

    `leased`: whether the machine on which it ran is still leased, as far as is known here. `again`: the
    command that trains again. `up`: the one that leased its machine; default: without overrides.
    """
    if record.succeeded:
        return complete_record(record, leased=leased)
    came_home = "pull_s" in record.timings
    gone = not leased or record.exit["reason"] in (ExitReason.PREEMPTED, ExitReason.DEADLINE) or not came_home
    logged = "Its record and what it printed are" if (record.folder / LOG).exists() else "Its record alone is"
    left = "Its record, log and files are" if came_home else logged
    if record.not_fetched:
        left = f"All but {len(record.not_fetched)} of its paths, which stayed on the machine, are"
    machine = "The machine is gone." if gone else _runs_on(record)
    unsent, declare = _unsent(record, Path(profile), again)
    elsewhere = f"orch down && {up or f'orch up {shlex.quote(profile)}'} && {again}"
    what_next = elsewhere if gone else declare or _what_next(record, again)
    if record.exit["reason"] == ExitReason.DISK_FULL:
        what_next = f"raise resources.disk in {shlex.quote(profile)}, then: {elsewhere}"
    if record.lacked:
        what_next = more_memory(record.lacked, profile, elsewhere)
    error = failure_of(record.exit["reason"])(
        f"{record.run_id} ended: {record.exit.get('detail') or record.exit['reason']}{_held(record)}{unsent}",
        exists=f"{left} in {record.folder}. {machine}",
        next_command=what_next,
    )
    error.record = record
    raise error


def more_memory(field: str, profile: str, again: str) -> str:
    """Return the command after a run that lacked memory. `again`: the command that trains again, with
    more memory.
    """
    return (
        f"orch size {shlex.quote(profile)} --write    # measures, and sets {field}, "
        f"which can be raised by hand too; then: {again}"
    )


def _held(record: RunRecord) -> str:
    """Return a sentence on the memory that a run used and had, if it lacked memory and was sampled; else
    "".
    """
    seen = record.profile or {}
    peak, limit = seen.get("peak_memory"), seen.get("memory")
    if record.exit["reason"] != ExitReason.OUT_OF_MEMORY or not peak:
        return ""
    had = f" of {limit / _GIB:.1f} GiB" if limit else ""
    return f" Its memory use reached {peak / _GIB:.1f} GiB{had}, and it requested more."


def _runs_on(record: RunRecord) -> str:
    machine = record.machine or {}
    name, price = machine.get("id", "The machine"), machine.get("price_usd_hour") or 0.0
    return f"{name} is still running, at ${price:.2f}/h."


def complete_record(record: RunRecord, *, leased: bool = True) -> RunRecord:
    """Return the record of a run whose results were fetched. Raise ResultsLost, with the record, if some
    stayed on the machine, or if a completed run wrote none of the outputs that its profile names.

    `leased`: see `raise_for_outcome`.
    """
    missing = record.missing_results
    if not missing and record.succeeded and record.wrote_no_output:
        raise _no_output(record, leased)
    if not missing:
        return record
    coming = any(each["reason"] in _CAN_COME for each in missing)
    again = f"orch pull --again {record.run_id}"
    there = "They are still on its machine:" if leased else "Its machine is gone, and they are lost."
    error = ResultsLost(
        f"{record.run_id}: {len(missing)} of its results were not downloaded: {_listed(missing)}.",
        exists=f"Everything else is in {record.folder}. {there}{' ' + _runs_on(record) if leased else ''}",
        next_command="orch status"
        if not leased
        else again
        if coming
        else f"{again}    # once that is fixed there; or: orch down",
    )
    error.record = record
    raise error


def _no_output(record: RunRecord, leased: bool) -> ResultsLost:
    names = ", ".join(f"{each['pattern']} ({_where(each)})" for each in record.unwritten[:_NAMED])
    others = f"{len(record.artifacts)} other files that it wrote are" if record.artifacts else "Its record is"
    error = ResultsLost(
        f"{record.run_id} completed, but wrote none of the outputs that train.outputs names: {names}.",
        exists=f"{others} in {record.folder}.{' ' + _runs_on(record) if leased else ''}",
        next_command=f"ls -R {shlex.quote(str(record.folder))}    # then correct train.outputs or the script",
    )
    error.record = record
    return error


def _where(unwritten: NotWritten) -> str:
    nearest = f"; the nearest that it wrote: {unwritten['nearest']}" if unwritten["nearest"] else ""
    return f"looked for {unwritten['looked_for']}{nearest}"


def _listed(missing: Sequence[Unfetched]) -> str:
    first = "; ".join(f"{each['path']} ({each['detail']})" for each in missing[:_NAMED])
    return f"{first}; and {len(missing) - _NAMED} more" if len(missing) > _NAMED else first


def _unsent(record: RunRecord, profile: Path, again: str) -> tuple[str, str]:
    """Return a sentence on files that were not sent, and the command that declares them, if the last output
    of a failed run names one of them; else two empty strings.
    """
    if record.exit["reason"] != ExitReason.FAILED:
        return "", ""
    from orchestrator.reads.advice import of_profile
    from orchestrator.reads.undeclared_words import declare_command, undeclared_sentence

    try:
        said = last_bytes(record.folder / LOG, _TAIL).decode(errors="replace")
        found = [each for each in of_profile(load(profile)) if each.name in said]
    except ProfileError:
        return "", ""
    if not found:
        return "", ""
    return (
        f"\n{undeclared_sentence(found, 'names')} The machine has none of it.",
        f"{declare_command(found, profile)} && {again}",
    )


def _what_next(record: RunRecord, again: str) -> str:
    if record.exit["reason"] == ExitReason.LOST:  # only its supervisor is known to have ended
        return f"orch cancel {record.run_id} && orch pull {record.run_id}    # then orch down"
    return f"orch logs {record.run_id}    # correct the cause, then: {again}; or: orch down"
