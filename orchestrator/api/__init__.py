"""Door 1: what a script or a scheduled job calls. It composes the rooms below and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.api.folder import Folder
from orchestrator.api.lease import down, plan, status, up
from orchestrator.api.record import compare, record
from orchestrator.api.train import attach, cancel, pull, train
from orchestrator.model import LeaseStatus, Progress, RunRecord

__all__ = [
    "Folder",
    "LeaseStatus",
    "RunRecord",
    "attach",
    "cancel",
    "compare",
    "down",
    "plan",
    "pull",
    "record",
    "run",
    "status",
    "train",
    "up",
]


def run(
    profile: str | Path,
    *,
    run_id: str,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    local_parity: bool = False,
    progress: Progress | None = None,
) -> RunRecord:
    """up, train, down in one call, for a scheduled job.

    Called again with the same `run_id` it finds what it left: the record, the run, or the machine. The
    machine is ended in every case but one: results that could not be pulled keep it until its deadline.
    """
    held = up(profile, overrides=overrides, folder=folder, progress=progress)
    try:
        return train(
            run_id=run_id, lease=held.lease, folder=folder, local_parity=local_parity, progress=progress
        )
    finally:
        if not _has_results_to_lose(held.lease, folder):
            down(held.lease, folder=folder, progress=progress)


def _has_results_to_lose(lease: str, folder: Path | str | None) -> bool:
    return bool(Folder.at(folder).lease(lease).uncollected)
