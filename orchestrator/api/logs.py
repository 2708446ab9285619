"""logs: the output of a run, from its start or from where the reader stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.ledger import Lease
from orchestrator.model import Progress
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import Output, as_progress
from orchestrator.runs.bookmarks import Bookmark, bookmark_of
from orchestrator.runs.find_run import known_ids, known_run, no_such_run, open_with_runs, profile_of
from orchestrator.session.project import Project

LOG = "output.log"
_RECORD = "run.json"


def logs(
    run_id: str | None = None,
    *,
    follow: bool = False,
    lease: str | None = None,
    folder: Path | str | None = None,
    output: Output,
    progress: Progress | Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Pass a run's output to `output`, block by block; returns {run_id, bytes, ended, reason, next_command}.

    `next_command`: what brings the results of a run that has ended here, if they are on its machine only.

    Without `follow`, all of it, from the local copy if the run was pulled. With `follow`, from the last byte
    that a reader in this folder received, until the run ends. If the machine is gone, the output that was
    received before.
    """
    project = Project.at(folder)
    pulled = _pulled(project, run_id)
    if pulled:
        return _of_the_copy(project, pulled, follow, output)
    if run_id and lease is None and not any(run_id in each.runs for each in open_with_runs(project)):
        raise no_such_run(f"There is no run {run_id} in {project.root}.", run_id, known_ids(project))
    held, run = known_run(project, run_id, lease)
    from orchestrator.runs.logs import passed_on
    from orchestrator.session.reach import MachineGone

    try:
        return _of_the_machine(project, held, run.run_id, follow, output, as_progress(progress))
    except MachineGone:
        kept = project.run(run.run_id) / LOG
        if follow or not kept.exists():
            raise
        return {
            "run_id": run.run_id,
            "bytes": passed_on(kept, 0, output),
            "ended": True,
            "reason": ExitReason.LOST,
            "next_command": None,
        }


def _of_the_copy(project: Project, log: Path, follow: bool, output: Output) -> dict[str, Any]:
    """Pass on the local log; a follower gets what comes after its bookmark."""
    from orchestrator.runs import logs as earlier
    from orchestrator.runs import record_file

    run_id = log.parent.name
    mark = _mark(project, run_id) if follow else None
    seen = earlier.before(log.parent) + mark.offset if mark and mark.offset else 0
    size = earlier.passed_on(log, seen, output)
    if mark and size > seen:
        mark.advance(size - earlier.before(log.parent) - mark.offset)
        mark.save()
    record = record_file.read(log.parent)
    return {
        "run_id": run_id,
        "bytes": size,
        "ended": True,
        "reason": str(record.exit.get("reason")) if record else None,
        "next_command": None,
    }


def _mark(project: Project, run_id: str) -> Bookmark | None:
    """How far a follower in this folder has read the run's output."""
    held = [lease for lease in project.leases() if run_id in lease.runs]
    return bookmark_of(project.ledger(held[-1].id), run_id) if held else None


def _of_the_machine(
    project: Project, lease: Lease, run_id: str, follow: bool, output: Output, tell: Progress
) -> dict[str, Any]:
    from orchestrator import jobs
    from orchestrator.leases.remains import naming
    from orchestrator.runs import follow as following
    from orchestrator.session.session import open_session

    ledger, again = project.ledger(lease.id), f"orch logs {'-f ' if follow else ''}{run_id}"
    with (
        naming(ledger, again),
        open_session(project, ledger, profile_of(lease, ()), progress=tell) as session,
    ):
        following.say_if_queued(session, run_id)
        if follow:
            ended = following.follow_to_end(session, run_id, output)
            offset = following.bookmark(session, run_id).offset
        else:
            before = _of_earlier_attempts(project, run_id, output)
            offset = before + jobs.follow(session.host, session.agent, run_id, 0, output, live=False)
            ended = jobs.state(session.host, session.agent, run_id).exit
            if ended:
                following.note_seen(session, run_id, ended)
        brings = _brings(ledger.lease(), run_id) if ended else None
    reason = ended.reason if ended else None
    end = {"ended": ended is not None, "reason": reason, "next_command": brings}
    return {"run_id": run_id, "bytes": offset, **end}


def _brings(lease: Lease, run_id: str) -> str | None:
    """The command that brings the results of an ended run here; None if they are here, or lost."""
    if all(run.run_id != run_id for run in lease.uncollected):
        return None
    if lease.for_run == run_id:
        return f"orch watch {run_id}    # downloads its results and deletes its machine"
    return f"orch pull {run_id}"


def _of_earlier_attempts(project: Project, run_id: str, output: Output) -> int:
    """Pass on the output of earlier attempts. Returns its length in bytes."""
    from orchestrator.runs import logs as earlier

    folder = project.run(run_id)
    earlier.lay_earlier(folder)
    size = earlier.before(folder)
    if size:
        earlier.passed_on(folder / LOG, 0, output, size)
    return size


def _pulled(project: Project, run_id: str | None) -> Path | None:
    """The local log of a run that has ended: of this run, or of the latest if no lease is open."""
    if run_id:
        log = project.run(run_id) / LOG
        return log if log.exists() and _settled(project, run_id) else None
    if project.open_leases():
        return None
    found = sorted(project.run(".").glob(f"*/{LOG}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UsageError("This project has no runs.", next_command=project.first_run_command)
    return found[-1]


def _settled(project: Project, run_id: str) -> bool:
    """Whether the record is local, or no machine can know more about the run."""
    recorded = (project.run(run_id) / _RECORD).exists()
    return recorded or not any(run_id in lease.runs for lease in project.open_leases())
