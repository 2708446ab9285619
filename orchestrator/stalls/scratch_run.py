"""profile: measure what the input of a training costs and what fixes of its pipeline gain, in a scratch
run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator import jobs
from orchestrator.errors import LocalError, MalformedAnswer, UsageError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Exited, Job, Progress
from orchestrator.model.answers import Malformed
from orchestrator.model.files import last_bytes, regular_bytes
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.plain import plain
from orchestrator.model.progress import as_progress
from orchestrator.runs import collect
from orchestrator.session.project import Project, check_run_id, new_run_id
from orchestrator.session.session import local_agent
from orchestrator.sizing import rightsize
from orchestrator.stalls.bottleneck import Named, name
from orchestrator.stalls.command import command_of
from orchestrator.stalls.differential import Differential, differential
from orchestrator.stalls.file_reads import FileReads, reads_of
from orchestrator.stalls.fixes import Tried, judge_fixes, untried_fixes, winner
from orchestrator.stalls.measured import read_result
from orchestrator.stalls.patch import diff
from orchestrator.stalls.scratch_folder import Scratch, copy_project

RESULT = "feeding.json"
OBJECT = "profile.json"
REFUSED_BYTES = 1 << 24
_LOG_END = 1 << 16
_SCRIPT_BYTES = 1 << 22

_LAST, _LONGEST = 8, 200
"""Maximum lines of a failed command's output that are shown, and characters of each."""

LIMIT = 900.0
"""Seconds, start-up included, after which a scratch run is ended."""


@dataclass(frozen=True)
class Options:
    """What to measure. `attempt`: try the fixes; `files`: count opens and reads of each path; `trace`: number
    of steps under tf.profiler.

    `seconds` of one window, `rounds` of windows, `budget`: seconds for everything; `staging`: a folder on a
    fast disk.
    """

    attempt: bool = False
    files: bool = False
    trace: int = 0
    rounds: int = 5
    seconds: float = 0.8
    budget: float = 180.0
    staging: str | None = None

    def plan(self, folder: str) -> dict[str, Any]:
        """Return the "feed" intervention that writes its results to `folder` of the computer where the run
        is."""
        return {
            "result": f"{folder}/{RESULT}",
            "try": self.attempt,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "budget": self.budget,
            "staging": self.staging,
            "trace": self.trace,
            "trace_folder": f"{folder}/trace",
            "files": f"{folder}/files" if self.files else None,
        }


@dataclass(frozen=True)
class Profiled:
    """The result. `found` is None if nothing could be measured; `why` is the reason. `system`: measurements
    of the sampler.

    `change`: the winning fix as a diff of the script. `untried`: why no fix was tried, if that was requested.
    `last_lines`: the end of the output of a command that failed.
    """

    run_id: str
    folder: Path
    command: tuple[str, ...]
    exit: Mapping[str, Any]
    found: Differential | None = None
    why: str = ""
    named: Named | None = None
    tried: Sequence[Tried] = ()
    untried: str = ""
    best: Tried | None = None
    change: str | None = None
    reads: Sequence[FileReads] = ()
    trace: Path | None = None
    system: Mapping[str, Any] | None = None
    notes: Sequence[str] = field(default_factory=tuple)
    last_lines: Sequence[str] = ()

    @property
    def failed(self) -> bool:
        """Whether the command itself failed, so that nothing was measured."""
        return self.found is None and self.exit.get("reason") not in (
            ExitReason.COMPLETED,
            ExitReason.CANCELLED,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the published object."""
        return {
            "run_id": self.run_id,
            "folder": str(self.folder),
            "command": list(self.command),
            "exit": dict(self.exit),
            "measured": self.found is not None,
            "why": self.why or None,
            "bottleneck": self.named.as_json() if self.named else None,
            "differential": self.found.as_json() if self.found else None,
            "tried": [each.as_json() for each in self.tried],
            "untried": self.untried or None,
            "best": self.best.name if self.best else None,
            "change": self.change,
            "files": [each.as_json() for each in self.reads],
            "trace": str(self.trace) if self.trace else None,
            "system": dict(self.system) if self.system else None,
            "notes": list(self.notes),
            "last_lines": list(self.last_lines),
        }


def profile(
    command: Sequence[str] = (),
    *,
    wish: Options | None = None,
    in_place: bool = False,
    run_id: str | None = None,
    folder: Path | str | None = None,
    limit: float = LIMIT,
    output: Callable[[bytes], None] | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> Profiled:
    """Measure the training that `command` runs, on this computer, in a scratch copy of the current folder.

    Without a command, that of `orch.yaml`, in the environment of its lock. The run ends by itself after the
    measurement; what it wrote is deleted, and the measurement is in `runs/<id>/`. Raises UsageError for a
    command that cannot be started, StackError if the lock's environment cannot be made, and LocalError if
    there is no room for a scratch copy.
    """
    wanted = wish or Options()
    tell = as_progress(progress)
    project = Project.at(folder)
    project.ignore_runs()
    asked = command_of(command, tell)
    run = check_run_id(run_id) if run_id else new_run_id("profile")
    project.require_runs(run)
    if project.run(run).exists():
        raise UsageError(
            f"A run {run} exists already in {project.run(run).parent}.",
            next_command=f"rm -r {project.run(run)}",
        )
    agent = local_agent(project)
    source = Path(jobs.run_dir(agent, run))
    with _scratch(asked.folder, asked.argv, in_place) as scratch, _staging(wanted) as staged:
        plan = {**scratch.plan(str(source), str(source / "refused")), "feed": staged.plan(str(source))}
        job = Job(
            run_id=run,
            argv=scratch.argv(asked.argv),
            python=asked.python,
            cwd=str(scratch.copy),
            env={**asked.env, "ORCH_IMPOSE": json.dumps(plan)},
        )
        exit_ = _run(agent, job, limit, output or told_lines(tell))
    home = project.run(run)
    collect_local(source, home)
    shutil.rmtree(source, ignore_errors=True)
    found = read(home, run, asked.argv, exit_, scratch)
    value = {"schema": "orch.profile/1", **found.as_json()}
    atomic_write(home / OBJECT, (json.dumps(value, indent=1) + "\n").encode())
    return found


@contextmanager
def _scratch(cwd: Path, argv: Sequence[str], in_place: bool) -> Iterator[Scratch]:
    original = cwd.resolve()
    if in_place:
        yield Scratch(original, original)
        return
    with tempfile.TemporaryDirectory(prefix="orch-profile-", ignore_cleanup_errors=True) as root:
        try:
            laid = copy_project(original, Path(root).resolve() / original.name)
        except OSError as error:
            raise LocalError(
                f"{original} could not be copied to a scratch folder: {error.strerror}.",
                next_command=f"orch profile --in-place -- {shlex.join(argv)}    # without a copy",
            ) from error
        yield laid


@contextmanager
def _staging(wish: Options) -> Iterator[Options]:
    """Return the options with a folder for staged data, which is deleted afterwards."""
    if not wish.attempt:
        yield wish
        return
    with tempfile.TemporaryDirectory(
        prefix="orch-staged-", dir=wish.staging, ignore_cleanup_errors=True
    ) as root:
        yield replace(wish, staging=root)


def _run(agent: Agent, job: Job, limit: float, output: Callable[[bytes], None]) -> Exited:
    """Run the job to its end, or until `limit` seconds have passed; Ctrl-C ends it."""
    host = HereHost()
    jobs.start(host, agent, job)
    late = threading.Timer(limit, lambda: jobs.cancel(host, agent, job.run_id, grace=2.0))
    late.daemon = True
    late.start()
    try:
        jobs.follow(host, agent, job.run_id, 0, output)
    except KeyboardInterrupt:
        jobs.cancel(host, agent, job.run_id, grace=2.0)
        shutil.rmtree(jobs.run_dir(agent, job.run_id), ignore_errors=True)
        raise
    finally:
        late.cancel()
    return collect.exit_json(jobs.state(host, agent, job.run_id).exit)


def told_lines(tell: Progress) -> Callable[[bytes], None]:
    """Return a function that passes on the lines that orch itself writes to a run's output."""
    rest = [b""]

    def write(data: bytes) -> None:
        *lines, rest[0] = (rest[0] + data).split(b"\n")
        for line in lines:
            if line.startswith(b"orch: "):
                tell.say(line[6:].decode(errors="replace"))

    return write


KEPT = ("output.log", "trace.jsonl", "exit.json", RESULT, "refused")
FOLDERS = ("trace", "files")


def collect_local(source: Path, home: Path) -> None:
    """Copy the measurements of a scratch run to `home`."""
    home.mkdir(parents=True, exist_ok=True)
    for each in KEPT:
        collect.copy_file(source / each, home / each)
    for each in FOLDERS:
        collect.copy_folder(source / each, home / each)


def read(
    home: Path, run_id: str, command: tuple[str, ...], exit_: Mapping[str, Any], scratch: Scratch
) -> Profiled:
    """Read and judge the measurements of a scratch run in `home`. Raises MalformedAnswer."""
    result = _result(home / RESULT)
    system = rightsize.profile_of_run(home)
    found = differential(result) if result.get("v") == 1 and not result.get("unmeasured") else None
    reads = _reads(home / "files")
    shutil.rmtree(home / "files", ignore_errors=True)
    notes = found.notes if found else result.get("notes") or ()
    plain = Profiled(run_id, home, command, exit_, system=system, notes=notes, reads=reads)
    trace = home / "trace" if any((home / "trace").rglob("*.xplane.pb")) else None
    if found is None:
        unmade = replace(plain, why=_why(home, result, exit_), trace=trace)
        if unmade.failed:
            return replace(unmade, system=None, last_lines=_last_lines(home))
        return replace(unmade, system=None) if result.get("unmeasured") else unmade
    judged = judge_fixes(found, result)
    best = winner(judged)
    return replace(
        plain,
        found=found,
        named=name(found),
        tried=judged,
        untried=untried_fixes(result) or "",
        best=best,
        change=_change(best, scratch) if best else None,
        trace=trace,
    )


def _result(path: Path) -> Mapping[str, Any]:
    try:
        return read_result(path)
    except Malformed as error:
        raise _unmeasured(path.parent, error) from None


def _reads(folder: Path) -> Sequence[FileReads]:
    try:
        return reads_of(folder)
    except Malformed as error:
        raise _unmeasured(folder.parent, error) from None


def _unmeasured(home: Path, error: Malformed) -> MalformedAnswer:
    return MalformedAnswer(
        f"The measurement of the input is invalid: {error}. It was not used.",
        exists=f"The log of the measurement is {home / 'output.log'}.",
        next_command="orch status    # what runs and costs; the program may write where orch measures",
    )


def _last_lines(home: Path) -> tuple[str, ...]:
    """Return the end of a failed command's output, which says why it failed."""
    text = plain(last_bytes(home / "output.log", _LOG_END).decode("utf-8", "replace"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("orch: ")]
    return tuple(line[:_LONGEST] for line in lines[-_LAST:])


def _why(home: Path, result: Mapping[str, Any], exit_: Mapping[str, Any]) -> str:
    """Return why nothing is known about the input."""
    if result.get("unmeasured"):
        return (
            f"The input was not measured: {result['unmeasured']}. What its steps take, and what passes "
            "between them, is told after a run: orch record -- COMMAND, or orch train."
        )
    if result:
        return (
            "No batch could be fed to the training: "
            + "; ".join(result.get("notes") or ["it gave none"])
            + "."
        )
    path = _refused(home / "refused")
    if path:
        return f"The script writes to {path}, which a scratch run may not change; with --in-place it may."
    if exit_.get("reason") not in (ExitReason.COMPLETED, ExitReason.CANCELLED):
        return f"The command ended before a second training step was seen: {exit_.get('detail')}"
    return (
        "No training step of TensorFlow was seen (Keras' fit, or a loop over a tf.data pipeline that takes "
        "gradients): only what the whole process used is told, nothing of single steps and their input."
    )


def _refused(path: Path) -> str:
    """Return the first path that a scratch run was not allowed to change; "" if there was none."""
    try:
        lines = regular_bytes(path, REFUSED_BYTES).decode("utf-8", "replace").splitlines()
    except (FileNotFoundError, Malformed):
        return ""
    return plain(next((line for line in lines if line.strip()), ""))[:4096]


def _change(best: Tried, scratch: Scratch) -> str | None:
    """Return the winning fix as a diff of the user's files."""
    files: dict[str, list[Mapping[str, Any]]] = {}
    for edit in best.edits:
        files.setdefault(str(edit["file"]), []).append(edit)
    parts: list[str | None] = []
    for file, edits in files.items():
        path = Path(os.path.normpath(scratch.back(Path(os.path.normpath(file)))))
        if not path.resolve().is_relative_to(scratch.original.resolve()):
            parts.append(None)  # the file does not belong to the project
            continue
        shown = path.relative_to(scratch.original) if path.is_relative_to(scratch.original) else path
        try:
            source = regular_bytes(path.resolve(), _SCRIPT_BYTES).decode("utf-8")
            parts.append(diff(str(shown), source, edits))
        except (OSError, Malformed, UnicodeDecodeError):
            parts.append(None)
    return None if not parts or None in parts else "".join(part for part in parts if part)
