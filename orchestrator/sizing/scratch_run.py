"""The scratch run of `size`: the program in a copy of its folder, with the hook that repeats its step."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator import jobs
from orchestrator.errors import LocalError, MalformedAnswer, RunFailed, UsageError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Exit, Job, Progress
from orchestrator.model.answers import Malformed
from orchestrator.model.files import first_line, last_bytes
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.plain import plain
from orchestrator.parity.intervention import Intervention
from orchestrator.profile import DataTree
from orchestrator.reads.opened import Opened, read_opened
from orchestrator.reads.reference import CACHES, Reference, View
from orchestrator.replay.command_line import program_of
from orchestrator.replay.sandbox import Copy
from orchestrator.runtime.rundir import RunDir, open_run
from orchestrator.runtime.sizing.meter import ALLOCATOR
from orchestrator.session.project import Project
from orchestrator.session.session import local_agent
from orchestrator.sizing.result import read_sizes

_POLL = 0.2
_TAIL = 12
_TAIL_BYTES = 1 << 16
"""Maximum lines and bytes of the end of the program's output that are shown."""


@dataclass(frozen=True)
class Program:
    """A command to run in `cwd`. A leading `python` stands for the interpreter `python`. `data`: trees to
    lay out there.
    """

    argv: tuple[str, ...]
    cwd: Path
    python: str
    env: Mapping[str, str] = field(default_factory=dict)
    data: tuple[DataTree, ...] = ()


@dataclass(frozen=True)
class Measured:
    """`result` as runtime.sizing wrote it; what the run `opened`; the `view` that maps paths in the copy
    to the originals; and when the run `begun` (Unix seconds).
    """

    result: dict[str, Any]
    opened: Opened
    view: View
    begun: float


@dataclass(frozen=True)
class _Outcome:
    """What a scratch run left. `result`: None if it never imported TensorFlow; `exit`: None if it was
    ended by this process; `tail`: the end of its output; `refused`: the first path to which a write was
    refused, or "".
    """

    result: dict[str, Any] | None
    exit: Exit | None
    tail: str
    refused: str


def measure(
    program: Program,
    project: Project,
    *,
    batch: int | None,
    sizes: Sequence[int],
    budget: float,
    limit: float,
    progress: Progress,
) -> Measured:
    """Make a scratch run (see runtime.sizing.sizing) and return its result, with one size at least.
    Raises as `size` does.
    """
    agent, begun = local_agent(project), time.time()
    with _folders(agent) as (run, scratch):
        reference = _reference(program)
        copy = reference.lay_out(Path(scratch.root), Intervention(), Path(agent.base))
        view = reference.view(copy, Path(scratch.root))
        wish = {"out": run.path("size.json"), "batch": batch, "sizes": list(sizes), "budget": budget}
        progress.say("Running up to the first training step, in a copy of the folder; nothing is kept of it.")
        ended = _run(agent, run, _job(program, copy, run, wish), limit, progress)
        outcome = _Outcome(_read(run), ended, _tail(run), first_line(Path(run.path("refused"))))
        opened = read_opened(Path(run.observe))
    return Measured(_judged(outcome, limit, shlex.join(program.argv)), opened, view, begun)


@contextmanager
def _folders(agent: Agent) -> Iterator[tuple[RunDir, RunDir]]:
    """Create a folder for a run and one for the copy, and remove both afterwards."""
    name = f"size-{secrets.token_hex(4)}"
    run, scratch = open_run(agent.base, name), open_run(agent.base, f"{name}-copy")
    try:
        for folder in (run, scratch):
            Path(folder.root).mkdir(parents=True)
        yield run, scratch
    finally:
        for folder in (run, scratch):
            shutil.rmtree(folder.root, ignore_errors=True)


def _reference(program: Program) -> Reference:
    known = program_of(program.argv)
    beside = (program.cwd / known.name).resolve().parent if known and not known.module else None
    return Reference(program.cwd.resolve(), program.data, beside)


def _job(program: Program, copy: Copy, run: RunDir, wish: Mapping[str, Any]) -> Job:
    originals = [str(original) for original, _ in copy.moved]
    sources = [str(tree.source) for tree in program.data]
    free = [run.root, *(str(there) for _, there in copy.moved), *map(os.path.expanduser, CACHES)]
    guard = {"kept": [*originals, *sources], "free": free, "refusals": run.path("refused")}
    own = {
        "ORCH_OPENED": run.observe,
        "ORCH_SIZE": json.dumps(wish),
        "ORCH_IMPOSE": json.dumps({"guard": guard}),
        ALLOCATOR: "1",
    }
    argv = tuple(str(copy.at(Path(word))) if word.startswith("/") else word for word in program.argv)
    if Path(argv[0]).name.startswith("python"):
        argv = ("python", *argv[1:])
    return Job(
        run_id=run.run_id, argv=argv, python=program.python, cwd=str(copy.cwd), env={**program.env, **own}
    )


def _run(agent: Agent, run: RunDir, job: Job, limit: float, progress: Progress) -> Exit | None:
    """Wait until the job ends and return its exit; end it at the limit and return None. Ctrl-C ends it,
    too.
    """
    host = HereHost()
    until = time.monotonic() + limit
    jobs.start(host, agent, job)
    told = ""
    try:
        while (state := jobs.state(host, agent, run.run_id)).state == "running":
            if time.monotonic() > until:
                jobs.cancel(host, agent, run.run_id, grace=0.5)
                return None
            told = _tell(run, told, progress)
            time.sleep(_POLL)
    except BaseException:
        jobs.cancel(host, agent, run.run_id, grace=0.5)
        raise
    return state.exit or Exit(None, None, ExitReason.LOST, "how it ended is not known")


def _tell(run: RunDir, told: str, progress: Progress) -> str:
    """Say which batch size is being tried, once."""
    trying = [note["batch"] for note in (_read(run) or {}).get("notes", ()) if note["why"] == "began"]
    words = f"  a batch of {trying[-1]} …" if trying else ""
    if words and words != told:
        progress.say(words)
    return words or told


# ---------------------------------------------------------------- what became of it


def _judged(outcome: _Outcome, limit: float, command: str) -> dict[str, Any]:
    """Return the result, or raise why there is none. `command`: that of the program, for a shell."""
    result = outcome.result
    if result is not None and result.get("sizes") and "state" in result:
        return result
    if outcome.refused:
        raise UsageError(
            f"The program writes to {outcome.refused}, which a scratch run may not change, so it reached no "
            "training step.",
            next_command="let it write below its working folder, and size it again",
        )
    if outcome.exit is None:
        raise UsageError(
            f"No training step was complete after {limit:.0f} s.{_said(outcome)}",
            next_command=f"orch size --limit {2 * limit:.0f}s -- {command}    # or a smaller --batch",
        )
    if outcome.exit.reason == ExitReason.OUT_OF_MEMORY or outcome.exit.signal == 9 or _exhausted(result):
        raise _too_small(result, command)
    if outcome.exit.code != 0 or (result or {}).get("end") == "failed" or _failed(result):
        raise RunFailed(f"The program failed before a step could be measured.{_why(result, outcome)}")
    if result is None:
        raise UsageError(
            "The program ended and never imported TensorFlow: there is no training step to measure."
            f"{_said(outcome)}",
            next_command=f"orch record -- {command}    # measures any command",
        )
    if result["end"] == "no batch":
        raise UsageError(f"The batch size of the program cannot be changed from outside: {result['detail']}.")
    raise UsageError(
        "The program imported TensorFlow and ended without a training step: no fit, no gradient taken."
        f"{_said(outcome)}"
    )


def _too_small(result: Mapping[str, Any] | None, command: str) -> LocalError:
    own = (result or {}).get("own_batch")
    said = f" with a batch of {own}" if own else ""
    return LocalError(
        f"This computer's memory is too small for this measurement: one training step{said} did not fit.",
        next_command=f"orch size --try 1,2,4 -- {command}    # smaller batches are enough to fit a line",
    )


def _failed(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the note of a size that failed: the program's own if it is one of them."""
    failed = [note for note in (result or {}).get("notes", ()) if note["why"] == "failed"]
    own = (result or {}).get("own_batch")
    return next((note for note in failed if note["batch"] == own), failed[0] if failed else None)


def _exhausted(result: Mapping[str, Any] | None) -> bool:
    return (_failed(result) or {}).get("error") in ("ResourceExhaustedError", "MemoryError")


def _why(result: Mapping[str, Any] | None, outcome: _Outcome) -> str:
    note = _failed(result)
    if note:
        own = ", its own" if note["batch"] == (result or {}).get("own_batch") else ""
        return f" With a batch of {note['batch']}{own}: {note['error']}: {note['detail']}"
    detail = (result or {}).get("detail")
    return f" {detail}" if detail else _said(outcome)


def _said(outcome: _Outcome) -> str:
    return f" Its last lines:\n{outcome.tail}" if outcome.tail else ""


def _read(run: RunDir) -> dict[str, Any] | None:
    try:
        return read_sizes(Path(run.path("size.json")))
    except Malformed as error:
        raise MalformedAnswer(
            f"What a training step needs could not be measured: {error}. The result was not used.",
            exists="The files of the run were removed.",
            next_command="orch lint    # the program may write where orch measures; then orch size again",
        ) from None


def _tail(run: RunDir) -> str:
    text = plain(last_bytes(Path(run.log), _TAIL_BYTES).decode("utf-8", "replace"))
    return "\n".join(text.strip().splitlines()[-_TAIL:])
