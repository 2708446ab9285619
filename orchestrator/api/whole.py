"""run: up, train, down in one call, for a scheduled job that may be started twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.api.collect import read
from orchestrator.api.ending import down
from orchestrator.api.folder import Folder, check_run_id
from orchestrator.api.lease import up
from orchestrator.api.training import train
from orchestrator.model import Progress, RunRecord
from orchestrator.profile.overrides import secrets_of


def run(
    profile: str | Path,
    *,
    run_id: str,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    local_parity: bool = False,
    progress: Progress | None = None,
) -> RunRecord:
    """up, train, down. Called again with the same `run_id` it finds what it left: record, run or machine.

    The machine is ended in every case but one: a run whose results could not be pulled keeps it until
    its deadline. Raises what `up` and `train` raise.
    """
    done = read(Folder.at(folder).run(check_run_id(run_id)))
    if done and done.succeeded:
        return done
    held = up(profile, overrides=overrides, folder=folder, progress=progress)
    try:
        return train(
            run_id=run_id,
            lease=held.lease,
            folder=folder,
            local_parity=local_parity,
            overrides=secrets_of(overrides),
            progress=progress,
        )
    finally:
        if not Folder.at(folder).lease(held.lease).uncollected:
            down(held.lease, folder=folder, progress=progress)
