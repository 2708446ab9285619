"""The verbs of orch for scripts and scheduled jobs. They compose the rooms below and decide nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api.cancelling import cancel
    from orchestrator.api.comparing import compare
    from orchestrator.api.lease import plan, up
    from orchestrator.api.pulling import pull, pull_all
    from orchestrator.api.recording import record
    from orchestrator.api.run_job import run
    from orchestrator.api.training import attach, train
    from orchestrator.leases.costs import costs
    from orchestrator.leases.down import down
    from orchestrator.leases.status import status
    from orchestrator.model import LeaseStatus, RunRecord
    from orchestrator.sizing.size import size

_HOME = {
    "LeaseStatus": "orchestrator.model",
    "RunRecord": "orchestrator.model",
    "attach": "orchestrator.api.training",
    "cancel": "orchestrator.api.cancelling",
    "compare": "orchestrator.api.comparing",
    "costs": "orchestrator.leases.costs",
    "down": "orchestrator.leases.down",
    "plan": "orchestrator.api.lease",
    "pull": "orchestrator.api.pulling",
    "pull_all": "orchestrator.api.pulling",
    "record": "orchestrator.api.recording",
    "run": "orchestrator.api.run_job",
    "size": "orchestrator.sizing.size",
    "status": "orchestrator.leases.status",
    "train": "orchestrator.api.training",
    "up": "orchestrator.api.lease",
}

__all__ = [
    "LeaseStatus",
    "RunRecord",
    "attach",
    "cancel",
    "compare",
    "costs",
    "down",
    "plan",
    "pull",
    "pull_all",
    "record",
    "run",
    "size",
    "status",
    "train",
    "up",
]


def __getattr__(name: str) -> Any:
    """Each verb loads what it needs, when it is first used: `status` needs no SSH and no profile."""
    if name not in _HOME:
        raise AttributeError(f"module 'orchestrator.api' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
