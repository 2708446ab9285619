"""Records scenarios: lays out a project for each side, runs `orch record` on it, and compares.

TensorFlow is imported once for each kind of start (see forks.py); every script is a fork of that.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import orchestrator as orch
from orchestrator.model import RunRecord, Verdict
from orchestrator.replay.pool import ReplayPool
from tests.parity.forks import Forks
from tests.parity.scenarios.model import Scenario, Side
from tests.parity.scenarios.projects import PROJECTS

BUDGET = 400.0
"""Seconds for confirming one cause: the table tells what orch can find, not how quick this computer is."""

_MEMORY = Path("/dev/shm")


class Bed:
    """Everything lies under `root`. `python_of` tells the interpreter of an environment by its name, "" for
    that of all tests."""

    def __init__(self, root: Path, python_of: Callable[[str], Path]) -> None:
        self.root = root
        self._python_of = python_of
        self._forks: dict[str, Forks] = {}
        self._recorded: dict[str, Path] = {}
        self._in_memory: list[Path] = []
        self._workshop = ReplayPool()

    def close(self) -> None:
        self._workshop.close()
        for forks in self._forks.values():
            forks.close()
        for folder in (self.root, *self._in_memory):
            shutil.rmtree(folder, ignore_errors=True)

    def verdict(self, scenario: Scenario, *, confirm: bool) -> Verdict:
        """Both sides recorded (each only once in this bed), and what is said of them."""
        a, b = (self.recorded(scenario, side) for side in scenario.sides)
        with standing({}, self.root, 2):
            wished = confirm and scenario.confirm
            found = orch.compare(a, b, folder=self.root, confirm=wished, budget=BUDGET, pool=self._workshop)
        assert "internal error" not in {each.outcome for each in found.tried}, found.tried
        return found

    def recorded(self, scenario: Scenario, side: Side) -> Path:
        """The run's folder."""
        key = hashlib.sha256(repr((scenario.project, scenario.steps, side)).encode()).hexdigest()[:12]
        if key not in self._recorded:
            self._recorded[key] = self._record(scenario, side, f"{scenario.slug}-{key}").folder
        return self._recorded[key]

    def _record(self, scenario: Scenario, side: Side, run_id: str) -> RunRecord:
        folder = self._place(side) / run_id / side.folder
        lay_out(folder, scenario.project, side)
        forks = self._of(side.environment)
        script = os.path.relpath(folder / scenario.project, folder / side.start)
        words = {
            "folder": folder,
            "bin": forks.shim.parent,
            "python": forks.shim,
            "interpreter": forks.python,
            "script": script,
        }
        environ = {name: value.format_map(words) for name, value in side.environ.items()}
        if side.host:
            environ[forks.HOST] = side.host
        forks.wait_for({**plain(), **environ})
        command = [word.format_map(words) for word in side.command]
        with standing(environ, folder / side.start, side.cpus):
            arguments = [*command, *side.arguments]
            return orch.record(arguments, steps=scenario.steps, run_id=run_id, folder=self.root)

    def _place(self, side: Side) -> Path:
        if side.memory and _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK):
            self._in_memory.append(Path(tempfile.mkdtemp(dir=_MEMORY)))
            return self._in_memory[-1]
        return self.root / "sides"

    def _of(self, environment: str) -> Forks:
        if environment not in self._forks:
            folder = self.root / f"python-{environment}"
            self._forks[environment] = Forks(folder, self._python_of(environment), plain())
        return self._forks[environment]


def plain() -> dict[str, str]:
    """The variables that every side has."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "TF_CPP_MIN_LOG_LEVEL": "3"}


@contextlib.contextmanager
def standing(environ: Mapping[str, str], folder: Path, cpus: int) -> Iterator[None]:
    """As if commands were typed in `folder`, with these variables and this many processors."""
    before, where, allowed = dict(os.environ), Path.cwd(), os.sched_getaffinity(0)
    typed = {**plain(), **environ}
    try:
        os.environ.clear()
        os.environ.update(typed)
        os.chdir(folder)
        os.sched_setaffinity(0, sorted(allowed)[:cpus])
        yield
    finally:
        os.chdir(where)
        os.environ.clear()
        os.environ.update(before)
        os.sched_setaffinity(0, allowed)


def lay_out(folder: Path, project: str, side: Side) -> None:
    """The project's files as this side has them, written in order (or in the reverse order)."""
    files = {**PROJECTS[project](), **side.files}
    for name, pairs in side.edits.items():
        text = files[name]
        assert isinstance(text, str), name
        for old, new in pairs:
            assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {name}"
            text = text.replace(old, new)
        files[name] = text
    (folder / side.start).mkdir(parents=True, exist_ok=True)
    for name, content in reversed(files.items()) if side.reversed_files else files.items():
        if content is not None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                path.mkdir(exist_ok=True)
                continue
            path.write_bytes(content.encode() if isinstance(content, str) else content)
