"""Tell a machine that a run's results were pulled, so that it may count as idle; repeated until
it was told.
"""

from __future__ import annotations

from contextlib import suppress

from orchestrator import jobs
from orchestrator.errors import HostError, LocalError, StorageError, UsageError
from orchestrator.ledger import Ledger
from orchestrator.ledger.events import RunReleased
from orchestrator.model import Agent, Host
from orchestrator.session.project import Project
from orchestrator.session.turns import free


def release(ledger: Ledger, host: Host, agent: Agent, run_id: str) -> None:
    """Tell the machine that the results of `run_id` were pulled, and record that it was told.

    A machine that cannot be reached counts as used until its deadline or until the next command reaches it.
    """
    with suppress(HostError, OSError, UsageError, LocalError, StorageError):
        jobs.mark_collected(host, agent, run_id)
        ledger.record(RunReleased(run_id))


def release_again(project: Project, ledger: Ledger, host: Host, agent: Agent | None = None) -> None:
    """Tell the machine about every pulled run of which it was not told because a command was killed or
    contact was lost.

    A run that another call works on is left to that call: its id may get a new attempt, also if a ledger line
    cannot be read. `agent`: the runtime on the machine; default: the one that each run was started with.
    """
    lease = ledger.lease()
    for run in lease.untold if lease.whole else ():
        known = agent or run.draft.agent
        if known is None:
            continue
        with suppress(OSError), free(project, run.run_id) as ours:
            if ours and run.run_id in (each.run_id for each in ledger.lease().untold):
                release(ledger, host, known, run.run_id)
