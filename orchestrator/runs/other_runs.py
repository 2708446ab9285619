"""Several runs on one machine: which ones are active, and which resources are free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator import jobs
from orchestrator.errors import Busy
from orchestrator.model import Room
from orchestrator.model.counted import counted
from orchestrator.model.progress import notice
from orchestrator.session.session import Session

_GIB = 1 << 30


def require_turn(
    session: Session, run_id: str, parallel: bool, queued: bool, *, report_unpulled: bool = False
) -> None:
    """Raise Busy if another run is active or queued on the machine, with the free resources; with `parallel`,
    only report it. A run that is `queued` waits for the others. `report_unpulled`: also report those that
    ended and were not pulled.
    """
    if queued:
        return
    active, ended = _others(session, run_id)
    if report_unpulled and ended:
        which, were = (ended[0], "was") if len(ended) == 1 else ("--all", "were")
        notice(session.progress, f"{', '.join(ended)} ended and {were} not pulled yet: orch pull {which}")
    if not active:
        return
    verb = "is" if len(active) == 1 else "are"
    found = f"{', '.join(active)} {verb} running on {session.machine.id}"
    free = _words(jobs.room(session.host, session.agent))
    if not parallel:
        raise Busy(
            f"{found}, and {run_id} would share the machine. Free now: {free}. Nothing was started.",
            exists=f"{session.machine.id} is still running, at ${session.machine.price:.2f}/h.",
            next_command=f"orch watch {active[0]}    # until it is here; then this run, or add --parallel",
        )
    notice(session.progress, f"{found}; {run_id} shares the machine. Free now: {free}")


def _others(session: Session, run_id: str) -> tuple[list[str], list[str]]:
    """Return the other runs that were not pulled: active or queued ones, and ended ones."""
    active, ended = [], []
    for run in session.ledger.lease().uncollected:
        if run.run_id == run_id:
            continue
        state = None if run.exit_reason else jobs.state(session.host, session.agent, run.run_id)
        if state is None or state.exit is not None:
            ended.append(run.run_id)
        elif state.active:
            active.append(run.run_id)
    return active, ended


@contextmanager
def naming_other_run(session: Session) -> Iterator[None]:
    """Raise Busy, with what exists and the next command, if the block raises PathTaken."""
    try:
        yield
    except jobs.PathTaken as taken:
        begun = taken.run_id in session.ledger.lease().runs
        first = f"orch logs -f {taken.run_id}" if begun else "orch status"
        until = "" if begun else f"{taken.run_id} compares its first steps; "
        raise Busy(
            f"{taken.message} Nothing was started.",
            exists=f"{session.machine.id} is still running, at ${session.machine.price:.2f}/h.",
            next_command=f"{first}    # {until}then the same command again",
        ) from taken


def _words(room: Room) -> str:
    parts = [
        f"{room.cores_free:g} of {counted(room.cores, 'core')}",
        f"{_amount(room.memory_free, room.memory)} of memory",
        *(f"{_amount(gpu.memory_free, gpu.memory)} of {gpu.name}" for gpu in room.gpus),
    ]
    return ", ".join(parts)


def _amount(free: int, whole: int) -> str:
    return f"{free / _GIB:.1f} of {whole / _GIB:.1f} GiB"
