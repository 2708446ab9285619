"""train --io-analyze: measure the input on the leased machine, after the results of the run were
downloaded.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator import jobs
from orchestrator.errors import HostError, MalformedAnswer
from orchestrator.hosts.atomic import atomic_write
from orchestrator.leases.remains import naming
from orchestrator.model import Job, Progress
from orchestrator.model.answers import SHORT
from orchestrator.model.progress import as_progress
from orchestrator.runs import collect
from orchestrator.runs.find_run import known_run, profile_of
from orchestrator.runs.other_runs import naming_other_run
from orchestrator.runs.spec import require_given
from orchestrator.session.project import Project
from orchestrator.session.session import Session, open_session
from orchestrator.stalls.measured import MOST_BYTES
from orchestrator.stalls.scratch_folder import Scratch
from orchestrator.stalls.scratch_run import (
    KEPT,
    OBJECT,
    REFUSED_BYTES,
    RESULT,
    Options,
    Profiled,
    read,
    told_lines,
)

_MOST = {RESULT: MOST_BYTES, "refused": REFUSED_BYTES, "exit.json": SHORT}
_LOG = 1 << 33
"""Maximum bytes of a log or a trace of the measurement, which lasts minutes."""

PLACE = "io"
"""Folder below that of a run for what its input costs."""


def analyse(
    run_id: str | None = None,
    *,
    wish: Options | None = None,
    lease: str | None = None,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> Profiled:
    """Run the command of a run once more on its machine, in a folder of its own, and measure its input.

    The run, its files and its record are not changed; the result is in `runs/<id>/io/`. Raises HostError if
    contact is lost, MalformedAnswer if a file of the measurement is invalid, UsageError if there is no such
    run.
    """
    project = Project.at(folder)
    held, run = known_run(project, run_id, lease)
    require_given(held, overrides, "orch train --io-analyze")
    tell, profile = as_progress(progress), profile_of(held, overrides)
    ledger = project.ledger(held.id)
    with naming(ledger, "orch status"), open_session(project, ledger, profile, progress=tell) as session:
        home = project.run(run.run_id) / PLACE
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        found = _measured(session, run.run_id, home, wish or Options(attempt=True))
    value = {"schema": "orch.profile/1", **found.as_json()}
    atomic_write(home / OBJECT, (json.dumps(value, indent=1) + "\n").encode())
    return found


def _measured(session: Session, run_id: str, home: Path, wish: Options) -> Profiled:
    job = _job(session, run_id, _free_name(session, run_id), wish)
    there = jobs.run_dir(session.agent, job.run_id)
    session.progress.say("Measuring what the input costs, on the same machine")
    with naming_other_run(session):
        jobs.start(session.host, session.agent, job)
    try:
        jobs.follow(session.host, session.agent, job.run_id, 0, told_lines(session.progress))
    except KeyboardInterrupt:
        jobs.cancel(session.host, session.agent, job.run_id, grace=2.0)
        raise
    exit_ = collect.exit_json(jobs.state(session.host, session.agent, job.run_id).exit)
    for each in KEPT:
        try:
            session.host.get(f"{there}/{each}", home / each, most=_MOST.get(each, _LOG))
        except MalformedAnswer:
            raise
        except HostError:  # the file was not written
            (home / each).unlink(missing_ok=True)
    scratch = Scratch(Path(session.profile.code.path), Path(there) / "work")
    return read(home, run_id, job.argv, exit_, scratch)


def _free_name(session: Session, run_id: str) -> str:
    """Return a run id that was not used on the machine yet."""
    number = 1
    while jobs.state(session.host, session.agent, f"{run_id}-io{number}").state != "absent":
        number += 1
    return f"{run_id}-io{number}"


def _job(session: Session, run_id: str, name: str, wish: Options) -> Job:
    begun = session.ledger.lease().runs[run_id].draft.job
    assert begun is not None, "a run that is only found was not started from here"
    # The current trees are measured, even if a later run has sent others since.
    trees = tuple(replace(link, digest="") for link in begun.trees)
    plan = {"feed": wish.plan(jobs.run_dir(session.agent, name))}
    env = {**session.profile.train.environment(), "ORCH_IMPOSE": json.dumps(plan)}
    return replace(begun, run_id=name, env=env, trees=trees, serves=run_id)
