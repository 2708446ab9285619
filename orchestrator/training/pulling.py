"""Which runs on a machine can be pulled, and pulling one."""

from __future__ import annotations

from orchestrator import jobs
from orchestrator.errors import Busy, OrchError, ResultsLost, UsageError
from orchestrator.model import RunRecord
from orchestrator.model.progress import notice
from orchestrator.runs.outcome import complete_record
from orchestrator.session.session import Session
from orchestrator.session.work_locks import run_lock
from orchestrator.training.download import download_run


def latest_ended(session: Session, again: bool) -> str:
    """The latest ended run that was not pulled; if there is none, the latest that was, which is shown, or
    with `again` fetched anew.

    Raises Busy if only an active run could bring something new.
    """
    ended, running = ended_and_active(session)
    if ended:
        return ended[-1]
    if running:
        raise still_running(session, running[-1], "All other ended runs have been pulled.")
    fetched = [run.run_id for run in session.ledger.lease().runs.values() if run.collected and not run.lost]
    if not fetched:
        raise UsageError("No run waits to be fetched.", next_command="orch train    # or: orch status")
    name = fetched[-1]
    what = "is fetched anew" if again else f"is shown again; to fetch it anew: orch pull {name} --again"
    session.progress.say(f"No run waits to be fetched. {name} was fetched before, and {what}")
    return name


def still_running(session: Session, run_id: str, others: str = "") -> Busy:
    lease = session.ledger.lease()
    old = [run.run_id for run in lease.runs.values() if run.collected and run.run_id != run_id]
    shown = f"    # {old[-1]} was fetched before: orch pull {old[-1]}" if old and others else ""
    run = lease.runs.get(run_id)
    return Busy(
        f"{run_id} is still {'queued' if run and run.waits else 'running'}. {others}".rstrip(),
        exists=f"The machine is still running, at ${lease.price:.2f}/h.",
        next_command=f"orch logs -f {run_id}{shown}",
    )


def pull_run(session: Session, run_id: str, *, again: bool = False) -> RunRecord:
    """Pull an ended run and return its record."""
    with run_lock(session.project, run_id, "pull", session.progress):
        state = jobs.state(session.host, session.agent, run_id)
        return complete_record(download_run(session, run_id, state.exit, again=again))


def ended_and_active(session: Session) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The runs whose results are on the machine only: ended ones and active ones."""
    ended, running = [], []
    for run in session.ledger.lease().uncollected:
        state = jobs.state(session.host, session.agent, run.run_id)
        if state.exit:
            ended.append(run.run_id)
        elif state.active:
            running.append(run.run_id)
    return tuple(ended), tuple(running)


def tell_others(session: Session) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Report which other runs can be pulled. Arguments as returned by `ended_and_active`."""
    ended, running = ended_and_active(session)
    if ended:
        which = ended[0] if len(ended) == 1 else "--all"
        notice(
            session.progress, f"Also ended and not pulled yet: {', '.join(ended)}. Next: orch pull {which}"
        )
    return ended, running


def together(lacking: list[ResultsLost]) -> OrchError:
    """One error for all runs whose results could not be downloaded, with the record of the first."""
    first = lacking[0]
    if len(lacking) > 1:
        first.message = "\n".join(error.message for error in lacking)
    return first
