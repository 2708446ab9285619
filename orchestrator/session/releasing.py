"""Report to a machine that a run's results were pulled, so that it counts as idle; later commands repeat a
failed report.
"""

from __future__ import annotations

from contextlib import suppress

from orchestrator import jobs
from orchestrator.errors import HostError, LocalError, StorageError, UsageError
from orchestrator.ledger import Ledger
from orchestrator.ledger.events import RunReleased
from orchestrator.model import Agent, Host
from orchestrator.session.project import Project
from orchestrator.session.work_locks import free


def release(ledger: Ledger, host: Host, agent: Agent, run_id: str) -> None:
    """Report to the machine that the results of `run_id` were pulled, and record the report in the ledger.

    Without the report, the machine counts as used until its deadline or the next command.
    """
    with suppress(HostError, OSError, UsageError, LocalError, StorageError):
        jobs.mark_collected(host, agent, run_id)
        ledger.record(RunReleased(run_id))


def release_again(project: Project, ledger: Ledger, host: Host, agent: Agent | None = None) -> None:
    """Repeat the report for every pulled run for which it failed, because a command was killed or contact was
    lost. Runs that another call works on are skipped, because their ids may get a new attempt. `agent`: the
    runtime on the machine; default: the one that started each run.
    """
    lease = ledger.lease()
    for run in lease.untold if lease.whole else ():
        known = agent or run.draft.agent
        if known is None:
            continue
        with suppress(OSError), free(project, run.run_id) as ours:
            if ours and run.run_id in (each.run_id for each in ledger.lease().untold):
                release(ledger, host, known, run.run_id)
