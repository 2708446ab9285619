"""logs: a run's output, whole or from where the reader left off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator import jobs
from orchestrator.api import follow as following
from orchestrator.api.awaiting import MachineGone
from orchestrator.api.collect import LOG, RECORD
from orchestrator.api.folder import Folder
from orchestrator.api.session import open_session
from orchestrator.api.training import known_run, profile_of
from orchestrator.errors import UsageError
from orchestrator.ledger import Lease
from orchestrator.model import Progress, Silent


def logs(
    run_id: str | None = None,
    *,
    follow: bool = False,
    lease: str | None = None,
    folder: Path | str | None = None,
    output: Callable[[bytes], None],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Pass a run's output to `output`; returns {run_id, bytes, ended, reason}.

    Without `follow`: all of it, from the pulled copy where there is one. With it: from the last byte
    that a follower in this folder saw, until the run ends. Of a run whose machine is gone: what a follower
    received, which is kept.
    """
    place = Folder.at(folder)
    pulled = _pulled(place, run_id)
    if pulled and not follow:
        data = pulled.read_bytes()
        output(data)
        return {"run_id": pulled.parent.name, "bytes": len(data), "ended": True, "reason": None}
    held, run = known_run(place, run_id, lease)
    try:
        return _of_the_machine(place, held, run.run_id, follow, output, progress or Silent())
    except MachineGone:
        kept = place.run(run.run_id) / LOG
        if follow or not kept.exists():
            raise
        data = kept.read_bytes()
        output(data)
        return {"run_id": run.run_id, "bytes": len(data), "ended": True, "reason": "lost"}


def _of_the_machine(
    place: Folder, held: Lease, run_id: str, follow: bool, output: Callable[[bytes], None], tell: Progress
) -> dict[str, Any]:
    with open_session(place, place.ledger(held.id), profile_of(held, ()), progress=tell) as session:
        if follow:
            ended = following.to_the_end(session, run_id, output)
            offset = following.bookmark(session, run_id).offset
        else:
            offset = jobs.follow(session.host, session.agent, run_id, 0, output, live=False)
            ended = jobs.state(session.host, session.agent, run_id).exit
    reason = ended.reason if ended else None
    return {"run_id": run_id, "bytes": offset, "ended": ended is not None, "reason": reason}


def _pulled(place: Folder, run_id: str | None) -> Path | None:
    """The log that lies here and will not grow: of that run, or of the latest where no lease is open."""
    if run_id:
        log = place.run(run_id) / LOG
        return log if log.exists() and _settled(place, run_id) else None
    if place.open_leases():
        return None
    found = sorted(place.run(".").glob(f"*/{LOG}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UsageError("There is no run in this folder.", next_command="orch train")
    return found[-1]


def _settled(place: Folder, run_id: str) -> bool:
    """Whether its record is here, or no machine can know more of it."""
    recorded = (place.run(run_id) / RECORD).exists()
    return recorded or not any(run_id in lease.runs for lease in place.open_leases())
