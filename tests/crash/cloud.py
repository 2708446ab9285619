"""A cloud that outlives the processes of its callers: MemoryProvider in a file, machines as folders here.

A machine's programs are children of this computer, below the machine's folder. Ending it kills them and
removes the folder, as a disk goes with its machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import HostError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Endpoint, Host, Machine, MachineSpec
from orchestrator.providers import memory
from tests.crash.points import EFFECT, INSIDE

R = TypeVar("R")


class StoredCloud(memory.MemoryProvider):
    """The cloud's state is a file. Every call reads it and writes it back under a lock."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def alive(self) -> list[Machine]:
        with self._stored():
            return list(super().alive())

    def left(self) -> list[str]:
        """Groups of machines: nothing else belongs to a machine but its folder, which goes with it."""
        with self._stored():
            return list(self.groups)

    def base(self, identity: str) -> Path:
        return self.folder / "machines" / identity

    def _answer(self, operation: str, effect: Callable[[], R]) -> R:
        sys.audit(EFFECT, f"{operation}: before")
        with self._stored():
            answer = super()._answer(operation, effect)
        sys.audit(EFFECT, f"{operation}: after")
        return answer

    @contextlib.contextmanager
    def _stored(self) -> Iterator[None]:
        """The state as its file has it; what is changed is there before anybody else may look."""
        inside = self.folder / INSIDE.strip("/")
        inside.mkdir(parents=True, exist_ok=True)
        with open(inside / "lock", "a+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = inside / "made"
            self._made, self.groups = pickle.loads(path.read_bytes()) if path.exists() else ({}, {})
            yield
            part = path.with_suffix(".part")
            part.write_bytes(pickle.dumps((self._made, self.groups)))
            part.replace(path)

    def make_image(self) -> None:
        """Machines made from now on have the installer of the one that there is, and need not be sent it."""
        (machine,) = self.alive()
        part = self._image.with_suffix(".part")
        part.mkdir(parents=True)
        subprocess.run(["cp", "-al", str(self.base(machine.id) / "uv"), str(part)], check=True)
        part.replace(self._image)

    @property
    def has_image(self) -> bool:
        return self._image.is_dir()

    @property
    def _image(self) -> Path:
        return self.folder / INSIDE.strip("/") / "image"

    def end(self, identity: str) -> None:
        """End a machine as its host's failure does."""
        with self._stored():
            self._end(identity)

    def _create(self, spec: MachineSpec) -> Machine:
        machine = super()._create(spec)
        base = self.base(machine.id)
        base.mkdir(parents=True, exist_ok=True)
        if self.has_image:
            subprocess.run(["cp", "-al", f"{self._image}/.", str(base)], check=True)
        off = ("touch", str(base / "powered-off"))
        detail = {**machine.detail, "base": str(base), "power_off": off}
        self._made[machine.id].machine = replace(self._made[machine.id].machine, detail=detail)
        return replace(machine, detail=detail)

    def _group_address(self, identity: str) -> str:  # noqa: ARG002 (all are on this computer)
        return "127.0.0.1"

    def _end(self, identity: str) -> None:
        super()._end(identity)
        base = self.base(identity)
        end_processes(base)
        if base.exists():
            ended = self.folder / INSIDE.strip("/") / identity
            base.replace(ended)
            subprocess.run(["rm", "-rf", str(ended)], check=True)


class Door(HereHost):
    """The way onto a machine; it breaks when the machine ends."""

    def __init__(self, base: Path) -> None:
        super().__init__()
        self._base = base

    def _require(self) -> None:
        if not self._base.is_dir():
            raise HostError(f"The connection to {self._base.name} broke.")

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self._require()
        done = super().run(*args, **kwargs)
        self._require()
        return done

    def open(self, *args: Any, **kwargs: Any) -> Any:
        self._require()
        return super().open(*args, **kwargs)


def connect(endpoint: Endpoint, *, machine_id: str, **_: Any) -> Host:
    """The way onto a machine of this cloud: a process here, as long as the machine exists."""
    base = Path(os.environ["ORCH_TEST_CLOUD"]) / "machines" / machine_id
    if not base.is_dir():
        raise HostError(f"{endpoint.address} does not answer.")
    return Door(base)


def open_stored(_: Path | None = None) -> StoredCloud:
    return StoredCloud(Path(os.environ["ORCH_TEST_CLOUD"]))


def processes_below(base: Path) -> dict[int, str]:
    """The processes whose program, folder or arguments lie below `base`, with their arguments."""
    return _processes(lambda entry, words: str(base) in words or str(base) in str((entry / "cwd").readlink()))


def processes_marked(text: str, *, but: int) -> dict[int, str]:
    """The processes in whose environment `text` is, whoever began them, with their arguments."""
    mark = text.encode()
    found = _processes(lambda entry, _: mark in (entry / "environ").read_bytes())
    return {pid: words for pid, words in found.items() if pid != but}


def _processes(meant: Callable[[Path, str], bool]) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
            if meant(entry, words):
                found[int(entry.name)] = words.replace("\0", " ").strip()
    return found


def end_processes(base: Path) -> None:
    while found := processes_below(base):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
