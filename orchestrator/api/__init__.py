"""Door 1: what a script or a scheduled job calls. It composes the rooms below and decides nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api.cancelling import cancel
    from orchestrator.api.comparing import compare
    from orchestrator.api.ending import down
    from orchestrator.api.lease import plan, up
    from orchestrator.api.pulling import pull, pull_all
    from orchestrator.api.recording import record
    from orchestrator.api.sizing import size
    from orchestrator.api.standing import status
    from orchestrator.api.training import attach, train
    from orchestrator.api.whole import run
    from orchestrator.model import LeaseStatus, RunRecord

_HOME = {
    "LeaseStatus": "orchestrator.model",
    "RunRecord": "orchestrator.model",
    "attach": "orchestrator.api.training",
    "cancel": "orchestrator.api.cancelling",
    "compare": "orchestrator.api.comparing",
    "down": "orchestrator.api.ending",
    "plan": "orchestrator.api.lease",
    "pull": "orchestrator.api.pulling",
    "pull_all": "orchestrator.api.pulling",
    "record": "orchestrator.api.recording",
    "run": "orchestrator.api.whole",
    "size": "orchestrator.api.sizing",
    "status": "orchestrator.api.standing",
    "train": "orchestrator.api.training",
    "up": "orchestrator.api.lease",
}

__all__ = [
    "LeaseStatus",
    "RunRecord",
    "attach",
    "cancel",
    "compare",
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
