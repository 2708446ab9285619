"""The attempts at one run id: which one answers a call, what is kept of earlier ones, how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.ledger import LeasedRun
from orchestrator.model import AttemptFacts, ExitReason, RunRecord
from orchestrator.profile import Profile
from orchestrator.runs import checkpoints, earlier_attempts, events, logs, record_file
from orchestrator.runs.inputs import Inputs, differences, inputs_of
from orchestrator.runs.metrics import is_finished
from orchestrator.runs.outcome import complete_record, raise_for_outcome
from orchestrator.session.project import Project


def latest_attempt(folder: Path) -> RunRecord | None:
    """Return the record of the last ended attempt, even if it was set aside for one that never started."""
    return record_file.read(folder) or next(
        (record for _, record in reversed(earlier_attempts.records(folder))), None
    )


def answering_record(
    project: Project,
    profile: Profile,
    run_id: str,
    *,
    retry: bool,
    seen: RunRecord | None,
    command: Callable[[str], str],
) -> RunRecord | None:
    """Return the record that answers a call for `run_id`; None if an attempt must be made.

    `seen`: the result of `latest_attempt` when the call started; an attempt that ended since was made by
    another call and answers this one too. Raises UsageError if a success had other inputs than exist now,
    with the `command` for another id, and RunFailed for an attempt that is not to be retried.
    """
    done = latest_attempt(project.run(run_id))
    if done is None:
        return None
    done = is_finished(done)
    machine = (done.machine or {}).get("id")
    leased = any(machine == (lease.machine or {}).get("id") for lease in project.open_leases())
    if done.succeeded:
        _require_same(project, profile, done, command)
        return complete_record(done, leased=leased)
    newer = seen is None or _number(seen) != _number(done)
    if not newer and (retry or done.exit["reason"] == ExitReason.NOT_STARTED):
        return None
    return raise_for_outcome(done, str(profile.path), leased=leased)


def number_of_next(project: Project, run_id: str, run: LeasedRun | None) -> int:
    """Return the number of the next attempt, from 1."""
    done = latest_attempt(project.run(run_id))
    return (
        max(
            _number(done) if done else 0,
            run.attempt if run and not run.found else 0,
            *earlier_attempts.numbers(project.run(run_id)),
        )
        + 1
    )


def changed_since(project: Project, run_id: str, now: Inputs) -> list[str]:
    """List what changed since the previous attempt; empty if this is the first."""
    done = latest_attempt(project.run(run_id))
    return differences(done, now) if done else []


def archive_attempt(project: Project, run_id: str) -> None:
    """Move the files of the last attempt into `attempts/<number>/`. Safe to interrupt and to repeat."""
    folder = project.run(run_id)
    done = record_file.read(folder)
    part = folder / earlier_attempts.FOLDER / "part"
    if done is not None:
        part.mkdir(parents=True, exist_ok=True)
        logs.set_aside(folder, part)
        stays = (earlier_attempts.FOLDER, checkpoints.FOLDER, events.FOLDER, record_file.RECORD)
        left = [path for path in folder.iterdir() if path.name not in stays]
        for path in [*left, folder / record_file.RECORD]:  # the record last: with it the folder is complete
            path.rename(part / path.name)
    moved = record_file.read(part)
    if moved is not None:
        part.rename(folder / earlier_attempts.FOLDER / str(_number(moved)))


def describe_attempts(project: Project, run: AttemptFacts, record: RunRecord) -> list[AttemptFacts]:
    """Return the `attempts` of a record: earlier ones and this one, described by the draft of `run`."""
    earlier = [_own(each) for _, each in earlier_attempts.records(project.run(record.run_id))]
    return [*(each for each in earlier if each["number"] < run["number"]), _told(record, run)]


def _told(record: RunRecord, run: AttemptFacts) -> AttemptFacts:
    cost, started, machine = record.cost or {}, run.get("started_at"), record.machine or {}
    return {
        "number": run["number"],
        "started_at": started,
        "ended_at": started + cost.get("run_seconds", 0.0) if started else None,
        "reason": record.exit["reason"],
        "detail": record.exit.get("detail", ""),
        "changed": list(run.get("changed", ())),
        "machine": machine.get("id"),
        "provider": machine.get("provider"),
        "instance_type": machine.get("instance_type"),
        "zone": machine.get("zone"),
        "usd": cost.get("run_usd"),
        "steps": None,
        "resumed_from": run.get("resumed_from"),
        "retried": run.get("retried") or {"interruption": 0, "error": 0},
    }


def _own(record: RunRecord) -> AttemptFacts:
    """Return the last attempt of a record; described from the record itself for older versions, which
    have only one.
    """
    return record.attempts[-1] if record.attempts else _told(record, {"number": 1})


def _number(record: RunRecord) -> int:
    return int(record.attempts[-1]["number"]) if record.attempts else 1


def _require_same(project: Project, profile: Profile, done: RunRecord, command: Callable[[str], str]) -> None:
    found = differences(done, inputs_of(project, profile))
    if found:
        raise UsageError(
            f"{done.run_id} has succeeded already, with other inputs than exist now: {'; '.join(found)}.",
            exists=f"Its record is in {done.folder}. Nothing was started.",
            next_command=command(f"{done.run_id[:97]}-2"),
        )
