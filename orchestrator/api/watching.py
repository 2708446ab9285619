"""watch: follow a run to its end, whoever started it and however that was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.ledger import Lease
from orchestrator.model import Progress, RunRecord, clouds
from orchestrator.model.progress import Output, as_progress
from orchestrator.profile import load
from orchestrator.runs.find_run import known_ids, no_such_run
from orchestrator.session.project import Project, check_run_id

if TYPE_CHECKING:
    from orchestrator.leases.consent import Approve


def watch(
    run_id: str,
    *,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    output: Output | None = None,
    approve: Approve | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> RunRecord:
    """Follow the run until it ends and download its results; retry it as its profile's `retry` allows.

    It acts as the command that started the run: `train` continues in its lease, and for `run` the machine is
    deleted at the end. It may be called at any time, and several times at once. A run that has ended is
    returned, or its failure raised, without starting anything. `overrides`: secrets of train.env, which are
    stored nowhere. Raises what `train` and `run` raise, and UsageError if the project differs from that of a
    success.
    """
    project, name = Project.at(folder), check_run_id(run_id)
    lease = _lease_of(project, name)
    if lease is None:
        raise no_such_run(f"No run {name} was started in {project.root}.", name, known_ids(project))
    tell = as_progress(progress)
    from orchestrator.training.options import RunOptions, sets

    words = f"orch watch {name}{sets(overrides)}"
    wish = RunOptions(parallel=True, overrides=overrides, run_id=name, words=words)
    if lease.for_run == name or not lease.open:
        from orchestrator.api.run_job import run_as

        given = (*_given(lease), *overrides)
        as_run = replace(wish, overrides=given, verb="run", path=lease.profile["path"])
        return run_as(as_run, project.root, output, tell)
    from orchestrator.api.training import train_as

    return train_as(replace(wish, lease=lease.id), project.root, output, approve, tell)


def _lease_of(project: Project, run_id: str) -> Lease | None:
    """The lease of the run's last attempt: an open one if possible, else the latest.

    A run that ended before its job started is known by the lease that was opened for it.
    """
    having = [lease for lease in project.leases() if run_id in lease.runs or lease.for_run == run_id]
    return max(having, key=lambda lease: (lease.open, lease.opened_at), default=None)


def _given(lease: Lease) -> tuple[str, ...]:
    """The overrides of the call that started the run, without the cloud that `any` resolved to."""
    given = tuple(str(each) for each in lease.profile["overrides"])
    path, chosen = Path(lease.profile["path"]), f"cloud={lease.profile['cloud']}"
    if given[-1:] == (chosen,) and load(path, overrides=given[:-1]).cloud == clouds.ANY:
        return given[:-1]
    return given
