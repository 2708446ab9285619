"""A project, a cloud that outlives its callers, and a server that runs verbs and kills them at a point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from orchestrator.model import Machine
from orchestrator.providers.local.provider import open_local
from orchestrator.runtime.acting import acts
from tests.conftest import ROOT
from tests.crash.cloud import StoredCloud, end_processes, processes_below, processes_marked
from tests.crash.emulated import Emulated
from tests.e2e.project import TINY_LOCK

SCRIPT = """
import json, pathlib
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
(out / "weights.bin").write_bytes(bytes(range(256)) * 4096)
(out / "metrics.json").write_text(json.dumps({"accuracy": 0.5}))
print("trained")
"""
WEIGHTS = bytes(range(256)) * 4096
PROFILE = """version: 1
name: tiny
PLACE
max_duration: 30m
data: [{source: data}]
train:
  command: python train.py
  outputs: [out]
"""


@dataclass(frozen=True)
class Outcome:
    """How one verb ended. `count`: the effects it had; `last`: the one counted last."""

    count: int
    last: str
    killed: bool
    error: str | None
    exit_code: int | None
    value: Any


class Cloud(Protocol):
    """What really exists: machines, and what else is `left` of them.

    Programs on its machines are found by the name of a folder below `folder`.
    """

    @property
    def folder(self) -> Path: ...

    def alive(self) -> Sequence[object]: ...

    def left(self) -> Sequence[str]: ...


@dataclass
class Rig:
    """`folder` is the project; `cloud` is what really exists."""

    kind: str
    folder: Path
    cloud: Cloud
    server: subprocess.Popen[str]
    _reported: set[str] = field(default_factory=set)

    def call(self, verb: str, *, kill_before: int | str | None = None, **arguments: Any) -> Outcome:
        """Carry out a verb of the api in a process of its own, killed before that effect if one is given."""
        assert self.server.stdin and self.server.stdout
        order = {"verb": verb, "arguments": arguments, "kill_before": kill_before}
        print(json.dumps(order), file=self.server.stdin, flush=True)
        return Outcome(**json.loads(self.server.stdout.readline()))

    def do(self, verb: str, **arguments: Any) -> Outcome:
        """Carry out a verb and demand that it succeeds."""
        done = self.call(verb, **arguments)
        assert done.error is None, f"{verb}: {done.error}"
        return done

    def partial_files(self) -> list[str]:
        """What an unfinished write left in the project, which a command that ended well leaves none of.

        Each is reported once, with the first kill that left it.
        """
        found = {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if _is_partial(path)}
        new = sorted(found - self._reported)
        self._reported |= found
        return new

    def leaks(self) -> list[str]:
        """What exists although nothing is leased: machines and what belongs to them, programs, keys.

        A program that is ending by itself is given a few seconds.
        """
        keys = {f"key {path}" for path in (self.folder / ".orch").glob("*/identity")}
        left = [*map(str, self.cloud.alive()), *self.cloud.left(), *sorted(keys - self._reported)]
        self._reported |= keys
        limit = time.monotonic() + _ENDING_S
        while (running := self._programs()) and time.monotonic() < limit:
            time.sleep(0.1)
        return left + [f"process {pid}: {words}" for pid, words in running.items()]

    def _programs(self) -> dict[int, str]:
        """Programs on machines, and those that a verb began and left."""
        begun = processes_marked(str(self.folder), but=self.server.pid)
        return {**begun, **processes_below(self.cloud.folder / "machines")}


def _is_partial(path: Path) -> bool:
    """Whether it has a name that orch gives to files and folders until they are whole."""
    return path.name.startswith(".new-") or path.suffix in (".part", ".tmp", ".partial")


_ENDING_S = 10.0
_MARK = "ORCH_TEST_RIG"
"""The variable by which whatever a verb begins is found."""

PLACES = {
    "memory": "cloud: memory\nresources: {cpus: 2, memory: 4 GiB}",
    "local": "cloud: local\nresources: {cpus: 1, memory: 1 GiB, disk: 1 GiB}",
    "aws": "cloud: aws\nregion: us-east-1\nresources: {cpus: 2, memory: 1 GiB, disk: 10 GiB}",
    "gcp": "cloud: gcp\nzone: us-central1-a\nresources: {cpus: 2, memory: 8 GiB, disk: 12 GiB}",
}


class LocalMachines:
    """The real machines of this computer that were made below `state`."""

    def __init__(self, state: Path) -> None:
        self.folder = state
        self._provider = open_local(state)

    def alive(self) -> Sequence[Machine]:
        return self._provider.list({})

    def left(self) -> Sequence[str]:
        """Images, whole ones and parts."""
        found = sorted((self.folder / "images").glob("*"))  # with those whose names begin with a dot
        return [f"image {path.name}" for path in found if path.name != ".lock"]


@contextmanager
def rig(folder: Path, kind: str = "memory", cloud: Emulated | None = None) -> Iterator[Rig]:
    """A fresh project below `folder`, and the server that acts on it.

    `kind`: memory, a cloud in a file whose machines are folders; local, real machines of this computer; or
    that of the emulated `cloud`, which outlives this and serves one rig at a time.
    """
    project = folder / "project"
    (project / "data").mkdir(parents=True)
    (project / "data" / "numbers.csv").write_text("1,2\n3,4\n" * 100)
    (project / "train.py").write_text(SCRIPT)
    (project / "requirements.lock").write_text(TINY_LOCK)
    (project / "orch.yaml").write_text(PROFILE.replace("PLACE", PLACES[kind]))
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.server", str(project), kind],
        cwd=ROOT,
        env={**_environment(folder), _MARK: str(project), **(cloud.env if cloud else {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Rig(kind, project, cloud or _own_cloud(folder, kind), server)
    finally:
        server.kill()
        server.wait()
        end_processes(folder / "cloud" / "machines")


def _own_cloud(folder: Path, kind: str) -> Cloud:
    return StoredCloud(folder / "cloud") if kind == "memory" else LocalMachines(folder / "state")


def _environment(folder: Path) -> dict[str, str]:
    """No program of this computer that powers it off is found by what runs on such a machine.

    Nor is any variable there that a machine must have too.
    """
    harmless = folder / "bin"
    harmless.mkdir()
    for name in ("poweroff", "shutdown", "halt", "reboot"):
        (harmless / name).write_text("#!/bin/sh\nexit 0\n")
        (harmless / name).chmod(0o755)
    return {
        **{name: value for name, value in os.environ.items() if not acts(name)},
        "PATH": f"{harmless}:{os.environ['PATH']}",
        "ORCH_TEST_CLOUD": str(folder / "cloud"),
        "ORCH_STATE_HOME": str(folder / "state"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
