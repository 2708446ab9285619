"""Tell a machine that a run's results are here, so that it may count as idle; again until it was told."""

from __future__ import annotations

from contextlib import suppress

from orchestrator import jobs
from orchestrator.errors import HostError, LocalError, StorageError, UsageError
from orchestrator.ledger import Ledger
from orchestrator.model import Agent, Host
from orchestrator.session.project import Project
from orchestrator.session.turns import free


def release(ledger: Ledger, host: Host, agent: Agent, run_id: str) -> None:
    """Tell the machine that the results of `run_id` are here, and note that it was told.

    A machine that was not reached counts as used until its deadline, or until the next command reaches it.
    """
    with suppress(HostError, OSError, UsageError, LocalError, StorageError):
        jobs.mark_collected(host, agent, run_id)
        ledger.append("run.released", run_id=run_id)


def release_again(project: Project, ledger: Ledger, host: Host, agent: Agent | None = None) -> None:
    """Tell the machine of every fetched run of which it was not told: a command was killed, or contact lost.

    A run that another call works on is left to it: its id may get a new attempt there, and so it may have
    where a line of the ledger cannot be read. `agent`: the runtime on the machine; else the one that each run
    was started with.
    """
    lease = ledger.lease()
    for run in lease.untold if lease.whole else ():
        known = agent or run.draft.agent
        if known is None:
            continue
        with suppress(OSError), free(project, run.run_id) as ours:
            if ours and run.run_id in (each.run_id for each in ledger.lease().untold):
                release(ledger, host, known, run.run_id)
