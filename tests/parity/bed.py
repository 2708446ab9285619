"""Records scenarios: lays out a project for each side, runs `orch record` on it, and compares.

TensorFlow is imported once for each kind of start (see forking/kind.py); every script is a fork of that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import orchestrator as orch
from orchestrator.model import RunRecord, Verdict
from tests.parity.forking.kind import socket_name, start_variables
from tests.parity.scenarios.model import Scenario, Side
from tests.parity.scenarios.projects import PROJECTS

FORKING = Path(__file__).parent / "forking"


class Bed:
    """Everything lies under `root`; `python` is the interpreter of an environment with TensorFlow."""

    def __init__(self, root: Path, python: Path) -> None:
        self.root = root
        self._python = python
        self._waiting: dict[str, subprocess.Popen[bytes]] = {}
        self._recorded: dict[str, Path] = {}
        self.shim = self._lay_out()

    def close(self) -> None:
        for process in self._waiting.values():
            process.communicate()

    # ------------------------------------------------------------ what a test asks for

    def verdict(self, scenario: Scenario, *, confirm: bool) -> Verdict:
        """Both sides recorded (each only once in this bed), and what is said of them."""
        a, b = (self.recorded(scenario, side) for side in scenario.sides)
        with standing({}, self.root, 2):
            return orch.compare(a, b, folder=self.root, confirm=confirm and scenario.confirm)

    def recorded(self, scenario: Scenario, side: Side) -> Path:
        """The run's folder."""
        key = hashlib.sha256(repr((scenario.project, scenario.steps, side)).encode()).hexdigest()[:12]
        if key not in self._recorded:
            self._recorded[key] = self._record(scenario, side, f"{scenario.slug}-{key}").folder
        return self._recorded[key]

    def _record(self, scenario: Scenario, side: Side, run_id: str) -> RunRecord:
        folder = self.root / "sides" / run_id / side.folder
        lay_out(folder, scenario.project, side)
        self._wait_for(side.environ)
        script = os.path.relpath(folder / scenario.project, folder / side.start)
        with standing(side.environ, folder / side.start, side.cpus):
            command = [side.python or str(self.shim), script, *side.arguments]
            return orch.record(command, steps=scenario.steps, run_id=run_id, folder=self.root)

    # ------------------------------------------------------------ forks

    def _lay_out(self) -> Path:
        folder = self.root / "bin"
        folder.mkdir(parents=True)
        (self.root / "sockets").mkdir()
        body = (FORKING / "python").read_text(encoding="utf-8")
        shim = folder / "python"
        shim.write_text(f"#!{sys.executable} -IS\n{body}", encoding="utf-8")
        shim.chmod(0o755)
        shutil.copy(FORKING / "kind.py", folder / "kind.py")
        settings = {"python": str(self._python), "sockets": str(self.root / "sockets")}
        (folder / "settings.json").write_text(json.dumps(settings))
        return shim

    def _wait_for(self, environ: Mapping[str, str]) -> None:
        """See that a process waits for scripts that start with these variables."""
        name = socket_name(environ)
        if name in self._waiting:
            return
        process = subprocess.Popen(
            [
                str(self._python),
                "-W",
                "ignore",
                str(FORKING / "waiting.py"),
                str(self.root / "sockets" / name),
            ],
            env={**plain(), **start_variables(environ)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", "TensorFlow could not be imported"
        self._waiting[name] = process


def plain() -> dict[str, str]:
    """The variables that every side has."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "TF_CPP_MIN_LOG_LEVEL": "3"}


@contextlib.contextmanager
def standing(environ: Mapping[str, str], folder: Path, cpus: int) -> Iterator[None]:
    """As if commands were typed in `folder`, with these variables and this many processors."""
    before, where, allowed = dict(os.environ), Path.cwd(), os.sched_getaffinity(0)
    try:
        os.environ.clear()
        os.environ.update({**plain(), **environ})
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
            path.write_bytes(content.encode() if isinstance(content, str) else content)
