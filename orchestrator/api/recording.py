"""record: record runs on this computer, in the environment of a command's Python."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator import jobs, stack, sync
from orchestrator.errors import UsageError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Fingerprint, Job, Progress, RunRecord
from orchestrator.model.beside import Beside
from orchestrator.model.progress import Output, as_progress, notice
from orchestrator.profile import load
from orchestrator.reads.advice import advice_here, of_run
from orchestrator.reads.opened import read_opened
from orchestrator.replay import recipe
from orchestrator.replay.command_line import command_python
from orchestrator.replay.standard_input import StandardInput
from orchestrator.replay.working_folders import appeared, files_of
from orchestrator.runs import collect, record_file
from orchestrator.session.project import Project, check_run_id, new_run_id
from orchestrator.session.session import local_agent
from orchestrator.session.trees import code_ignored
from orchestrator.sizing import rightsize

DEFAULT_STEPS = 3


def record(
    command: Sequence[str],
    *,
    steps: int = DEFAULT_STEPS,
    light: int = 0,
    run_id: str | None = None,
    folder: Path | str | None = None,
    output: Output | None = None,
    progress: Progress | Callable[[str], None] | None = None,
    stdin: BinaryIO | None = None,
) -> RunRecord:
    """Run `command` in the current folder and record exit, stack, I/O profile and the first `steps` steps,
    plus fingerprints of `light` steps after them.

    Nothing is staged or copied; the recording is `runs/<id>/`. A failure of the command is reported in
    `exit`; only a command that cannot be started raises UsageError. `stdin` is passed to the command and
    recorded; None gives it no standard input.
    """
    tell = as_progress(progress)
    project = Project.at(folder)
    name = _new_run(project, run_id)
    agent = local_agent(project)
    python = command_python(command)
    host = HereHost()
    job = Job(
        run_id=name,
        argv=tuple(command),
        python=python,
        cwd=str(Path.cwd()),
        observe_steps=steps,
        observe_light=light,
    )
    begun = time.time()
    before = set(files_of(Path.cwd()))
    held = recipe.snapshot_inputs(Path.cwd(), before)
    environment = Beside(partial(stack.attest_here, Path(python)))
    given = _run(host, agent, job, stdin, output or _nowhere)
    state = jobs.state(host, agent, name)
    done = {**_recorded(host, agent, name, project.run(name)), "stack": _stack(environment, python, tell)}
    recipe.write_recipe(
        project.run(name), command, Path.cwd(), python, made=appeared(before, Path.cwd()), stdin=given
    )
    recipe.keep_inputs(project.run(name), command, Path.cwd(), held)
    exit_ = collect.exit_json(state.exit)
    timings = {}
    if state.started_at and state.ended_at:
        timings["train_s"] = round(state.ended_at - state.started_at, 3)
    finished = RunRecord(run_id=name, path=str(project.run(name)), exit=exit_, timings=timings, **done)
    record_file.write(finished)
    found, profile = of_run(read_opened(project.run(name) / "observe"), Path.cwd(), command, begun)
    if found:
        notice(tell, f"Note: {advice_here(found, profile)}")
    return finished


def _new_run(project: Project, run_id: str | None) -> str:
    """A run id that is valid and unused in the project."""
    name = check_run_id(run_id) if run_id else new_run_id("record")
    if project.run(name).exists():
        raise UsageError(
            f"A run {name} exists already in {project.run(name).parent}.",
            next_command=f"rm -r {project.run(name)}    # or choose another --run-id",
        )
    project.require_runs(name)
    project.ignore_runs()
    return name


def _run(
    host: HereHost, agent: Agent, job: Job, stdin: BinaryIO | None, output: Callable[[bytes], None]
) -> bytes | None:
    """Run the job to its end. Returns what it read from standard input."""
    if stdin is None:
        jobs.start(host, agent, job)
        _follow(host, agent, job.run_id, output)
        return None
    with StandardInput(stdin) as passed:
        jobs.start(host, agent, replace(job, stdin=str(passed.path)))
        passed.begin()
        _follow(host, agent, job.run_id, output)
        return passed.consumed()


def _follow(host: HereHost, agent: Agent, run_id: str, output: Callable[[bytes], None]) -> None:
    try:
        jobs.follow(host, agent, run_id, 0, output)
    except KeyboardInterrupt:
        jobs.cancel(host, agent, run_id)
        raise


def _nowhere(data: bytes) -> None:
    del data


def _recorded(host: HereHost, agent: Agent, run_id: str, folder: Path) -> dict[str, Any]:
    source = Path(jobs.run_dir(agent, run_id))
    folder.mkdir(parents=True)
    for name in ("output.log", "trace.jsonl", "exit.json"):
        collect.copy_file(source / name, folder / name)
    collect.copy_folder(source / "observe", folder / "observe")
    entries = jobs.outputs(host, agent, run_id)
    cwd = Path.cwd()
    artifacts = [
        {"path": os.path.relpath(cwd / e.path, folder), "sha256": e.digest, "bytes": e.size}
        for e in entries
        if e.kind == "file"
    ]
    shutil.rmtree(source, ignore_errors=True)
    return {"profile": rightsize.profile_of_run(folder), "artifacts": artifacts}


def _stack(environment: Beside[Fingerprint], python: str, tell: Progress) -> dict[str, Any] | None:
    """The environment of CMD; None if its Python cannot be inspected."""
    try:
        here = environment.result()
    except Exception as error:  # the command need not be Python
        notice(tell, f"The environment of {python} could not be inspected: {error}")
        return None
    return {
        "digest": here.digest,
        "python": here.python,
        "packages": len(here.distributions),
        "interpreter": python,
        "lock": None,
        "differences": [],
    }


def left_behind(profile: Path | str, overrides: Sequence[str]) -> list[tuple[str, str]]:
    """The files that a sync of the profile's code does not send: (path, reason)."""
    wanted = load(Path(profile), overrides=tuple(overrides))
    return list(sync.scan(wanted.code.path, ignore=code_ignored(wanted)).skipped)
