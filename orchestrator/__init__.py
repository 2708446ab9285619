"""Provision a right-sized machine, train there, and prove that it is the same as here.

    import orchestrator as orch

    lease = orch.up("profiles/digits.yaml")
    record = orch.train(local_parity=True)
    orch.down()

or all three, for a scheduled job that may be started twice:

    record = orch.run("profiles/digits.yaml", run_id="retrain-2026-01-31")

Every failure is an `OrchError` with a message, what still exists, and the next command.
Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api import (
        Approve,
        ApproveDeletion,
        LeaseStatus,
        Output,
        Progress,
        RunRecord,
        attach,
        bake_image,
        cancel,
        compare,
        costs,
        delete_image,
        down,
        history,
        list_images,
        models,
        plan,
        pull,
        pull_all,
        record,
        rerun,
        resume_check,
        rollback,
        run,
        size,
        status,
        sweep,
        top,
        train,
        up,
        watch,
    )
    from orchestrator.errors import (
        Busy,
        CleanupUnproven,
        DataNotSent,
        DeadlineReached,
        DiskFull,
        HostError,
        HostKeyError,
        LossNotFinite,
        NotAccepted,
        OrchError,
        OutOfMemory,
        ParityMismatch,
        Preempted,
        ProfileError,
        ProviderError,
        ResultsLost,
        ResumeRefused,
        RunCancelled,
        RunFailed,
        RunLost,
        StackError,
        StackMismatch,
        Stalled,
        SyncError,
        UsageError,
    )
    from orchestrator.profile import Profile, load

__version__ = "0.2.0"

_ROOMS = ("orchestrator.api", "orchestrator.errors", "orchestrator.profile")
"""Modules that are searched for a name, the slowest to import last."""

__all__ = [
    "Approve",
    "ApproveDeletion",
    "Busy",
    "CleanupUnproven",
    "DataNotSent",
    "DeadlineReached",
    "DiskFull",
    "HostError",
    "HostKeyError",
    "LeaseStatus",
    "LossNotFinite",
    "NotAccepted",
    "OrchError",
    "OutOfMemory",
    "Output",
    "ParityMismatch",
    "Preempted",
    "Profile",
    "ProfileError",
    "Progress",
    "ProviderError",
    "ResultsLost",
    "ResumeRefused",
    "RunCancelled",
    "RunFailed",
    "RunLost",
    "RunRecord",
    "StackError",
    "StackMismatch",
    "Stalled",
    "SyncError",
    "UsageError",
    "attach",
    "bake_image",
    "cancel",
    "compare",
    "costs",
    "delete_image",
    "down",
    "history",
    "list_images",
    "load",
    "models",
    "plan",
    "pull",
    "pull_all",
    "record",
    "rerun",
    "resume_check",
    "rollback",
    "run",
    "size",
    "status",
    "sweep",
    "top",
    "train",
    "up",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for room in _ROOMS:
            value = getattr(import_module(room), name, None)
            if value is not None:
                return value
    raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """A package that keeps its public names when a submodule of the same name is imported, such as `plan`."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
