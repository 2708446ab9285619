"""logs: a run's output, whole or from where the reader left off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator import jobs
from orchestrator.api import follow as following
from orchestrator.api.folder import Folder
from orchestrator.api.session import open_session
from orchestrator.api.training import known_run, profile_of
from orchestrator.errors import UsageError
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
    that a follower in this folder saw, until the run ends.
    """
    place = Folder.at(folder)
    pulled = _pulled(place, run_id)
    if pulled and not follow:
        data = pulled.read_bytes()
        output(data)
        return {"run_id": pulled.parent.name, "bytes": len(data), "ended": True, "reason": None}
    held, run = known_run(place, run_id, lease)
    with open_session(
        place, place.ledger(held.id), profile_of(held, ()), progress=progress or Silent()
    ) as session:
        if follow:
            ended = following.to_the_end(session, run.run_id, output)
            offset = following.bookmark(session, run.run_id).offset
        else:
            offset = jobs.follow(session.host, session.agent, run.run_id, 0, output, live=False)
            ended = jobs.state(session.host, session.agent, run.run_id).exit
    reason = ended.reason if ended else None
    return {"run_id": run.run_id, "bytes": offset, "ended": ended is not None, "reason": reason}


def _pulled(place: Folder, run_id: str | None) -> Path | None:
    """The log that was brought home: of that run, or of the latest where no lease is open."""
    if run_id:
        log = place.run(run_id) / "output.log"
        return log if log.exists() else None
    if place.open_leases():
        return None
    found = sorted(place.run(".").glob("*/output.log"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UsageError("There is no run in this folder.", next_command="orch train")
    return found[-1]
