"""Run one job in a copy of its folder: kill it, restore the folder as it was at the kill, and resume it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from orchestrator.model import Agent
from orchestrator.model.answers import Malformed, decoded
from orchestrator.parity.intervention import Intervention
from orchestrator.parity.recording import read
from orchestrator.replay.command_line import folder_of, program_of
from orchestrator.replay.sandbox import Copy, Folders
from orchestrator.resume.seen import Attempt, read_events
from orchestrator.runtime.agent.command import environment as job_environment
from orchestrator.runtime.resume import values
from orchestrator.runtime.rundir import open_run
from orchestrator.runtime.temporary import own_temporary

STEPS = 2000
"""Steps that are recorded; what a job does after them is not compared."""

_LARGEST = 64 << 20
_POLL = 0.02
_MOST_PICKLES = 100
_PATIENCE = 60.0


@dataclass(frozen=True)
class Wish:
    """The settings of one attempt beside its command; see runtime.resume.watch."""

    kill: Mapping[str, Any] = field(default_factory=dict)
    states: Path | None = None
    generators: str = ""
    callbacks: Sequence[Mapping[str, Any]] | None = None
    batches: Path | None = None
    variables: Path | None = None
    attempt: int = 1


@dataclass(frozen=True)
class Command:
    """`argv`, run in `cwd` with the interpreter `python`; `env` is added to the variables of this process."""

    argv: tuple[str, ...]
    cwd: Path
    python: str
    env: Mapping[str, str] = field(default_factory=dict)


class Originals(Protocol):
    """What is copied. Like Reference, which also places a profile's data there."""

    def lay_out(self, root: Path, imposed: Intervention, base: Path, without: frozenset[Path]) -> Copy: ...


@dataclass(frozen=True)
class WorkingFolder:
    """The folder in which `command` is started, and that of its program."""

    command: Command

    def lay_out(self, root: Path, imposed: Intervention, base: Path, without: frozenset[Path]) -> Copy:
        cwd = self.command.cwd
        return Folders(cwd, folder_of(self.command.argv, cwd), without).lay_out(root, imposed, base)


class Scratch:
    """A copy of the `originals` of a command below `root`, without the files in `without` and without the
    contents of `folders`, which belong to other runs. Runs write only there and in temporary folders.
    """

    def __init__(
        self, command: Command, originals: Originals, agent: Agent, root: Path, folders: Sequence[str]
    ) -> None:
        self.folders = tuple(folders)
        self._argv = command.argv
        self._cwd = command.cwd
        self._python = command.python
        self._env = command.env
        self._originals = originals
        self._agent = agent
        self._root = root
        self._copy: Copy | None = None
        self._without: frozenset[Path] = frozenset()
        self._count = 0
        self._began_with: dict[str, str] = {}

    def lay_out(self, without: frozenset[str] = frozenset()) -> None:
        """Copy the folder as it is now, without checkpoints of other runs."""
        shutil.rmtree(self._root / "work", ignore_errors=True)
        (self._root / "work").mkdir(parents=True)
        named = {path for name in self.folders for path in (self._cwd / name).rglob("*") if path.is_file()}
        named |= {self._cwd / name for name in self.folders if (self._cwd / name).is_file()}
        self._without = frozenset(named | {self._cwd / name for name in without})
        work, base = self._root / "work", Path(self._agent.base)
        self._copy = self._originals.lay_out(work, Intervention(), base, self._without)
        self._began_with = self._contents()

    def keep(self) -> None:
        """Remember the folder as it is now, after the kill."""
        shutil.rmtree(self._root / "killed", ignore_errors=True)
        shutil.copytree(self._root / "work", self._root / "killed", symlinks=True)

    def put_back(self) -> None:
        """Restore the folder as it was remembered."""
        shutil.rmtree(self._root / "work", ignore_errors=True)
        shutil.copytree(self._root / "killed", self._root / "work", symlinks=True)

    def run(self, wish: Wish, until: float, output: Callable[[str], None]) -> Attempt | None:
        """Run one attempt; returns None if it is still running at `until`."""
        assert self._copy
        self._count += 1
        base = self._root / f"attempt-{self._count}"
        base.mkdir()
        output(f"attempt {self._count}")
        environment = self._environment(base, wish)
        code = self._process(base, environment, until)
        if code is None:
            return None
        log = (base / "output.log").read_text(encoding="utf-8", errors="replace")
        return Attempt(
            code, read(base), read_events(base / "watch.jsonl"), self._left(), tuple(log.splitlines())
        )

    def observe(self, number: int = 0) -> Path:
        """Return the recording of an attempt; of the last one for 0."""
        return self._root / f"attempt-{number or self._count}" / "observe"

    def existed(self, name: str) -> bool:
        """Whether the user's folder already has that file, from another run."""
        return (self._cwd / name).exists() and self._cwd / name not in self._without

    # ------------------------------------------------------------ inside

    def _environment(self, base: Path, wish: Wish) -> dict[str, str]:
        assert self._copy
        copy = self._copy
        run = open_run(str(base), "run")
        asked = {"observe_steps": STEPS, "stop_after_observed": False}
        spec = {"python": self._python, "env": dict(self._env), **asked}
        found = job_environment(run, spec, str(copy.cwd), os.environ)
        found.pop("ORCH_TRACE", None)
        kept = [str(copy.reach(seat.original.resolve())) for seat in copy.seats]
        free = [str(self._root), *(str(seat.seen.resolve()) for seat in copy.seats)]
        plan = {
            "guard": {"kept": kept, "free": free, "refusals": str(base / "refused")},
            "mirror": [[str(seat.seen.resolve()), str(seat.original.resolve())] for seat in copy.seats],
        }
        watch: dict[str, Any] = {
            "root": str(copy.cwd.resolve()),
            "log": str(base / "watch.jsonl"),
            "folders": list(self.folders),
            "kill": dict(wish.kill),
            "states": str(wish.states or ""),
            "generators": wish.generators,
            "callbacks": wish.callbacks,
        }
        found |= {
            "ORCH_OBSERVE_DIR": str(base / "observe"),
            "ORCH_IMPOSE": json.dumps(plan),
            "ORCH_RESUME": json.dumps(watch),
            "ORCH_ATTEMPT": str(wish.attempt),
        }
        if wish.batches:
            found["ORCH_IMPOSE_BATCH"] = str(wish.batches)
        if wish.variables:
            found |= {"ORCH_IMPOSE_WEIGHTS": str(wish.variables), "ORCH_IMPOSE_SLOTS": "1"}
        return found

    def _process(self, base: Path, environment: dict[str, str], until: float) -> int | None:
        assert self._copy
        with own_temporary(environment) as given, (base / "output.log").open("wb") as log:
            process = subprocess.Popen(
                self._command(),
                cwd=self._copy.cwd,
                env=given,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                while process.poll() is None and time.monotonic() < until:
                    if self._killed(base):
                        break
                    time.sleep(_POLL)
                over = process.poll() is None and not self._killed(base)
            finally:
                _end(process)
        return None if over else process.returncode

    def _killed(self, base: Path) -> bool:
        """Whether the training process has killed itself. The process that started it is then ended too."""
        return any(each.event == "killed" for each in read_events(base / "watch.jsonl"))

    def _command(self) -> list[str]:
        assert self._copy
        copy, program = self._copy, program_of(self._argv)
        words = [str(copy.at(Path(word))) if word.startswith("/") else word for word in self._argv]
        if program is not None:
            words[0] = self._python
            if not program.module and not Path(program.name).is_absolute():
                there = copy.at(Path(os.path.normpath(self._cwd / program.name)))
                words[words.index(program.name)] = os.path.relpath(there, copy.cwd)
        return words

    def _contents(self) -> dict[str, str]:
        """Return the SHA-256 of every file that the copy has of its own, by name."""
        assert self._copy
        found = {}
        for folder, inside, names in os.walk(self._copy.cwd):
            inside[:] = [name for name in inside if name != "__pycache__"]
            for name in names:
                path = Path(folder) / name
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST:
                    short = str(path.relative_to(self._copy.cwd))
                    found[short] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def _left(self) -> dict[str, str]:
        now = self._contents()
        left = {name: each for name, each in now.items() if self._began_with.get(name) != each}
        return {**left, **self._values([name for name in left if name.endswith(values.SUFFIXES)])}

    def _values(self, names: Sequence[str]) -> dict[str, str]:
        """Return digests of the contents of pickle files, read by the job's own interpreter; empty if that
        fails.
        """
        assert self._copy
        if not names:
            return {}
        command = [self._python, "-B", values.__file__, *names[:_MOST_PICKLES]]
        try:
            ended = subprocess.run(
                command, cwd=self._copy.cwd, capture_output=True, check=False, timeout=_PATIENCE
            )
            return decoded(dict[str, str], ended.stdout)
        except (subprocess.TimeoutExpired, Malformed):
            return {}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the attempt, as the loss of a machine would."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
