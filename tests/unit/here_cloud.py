"""A cloud whose machines are folders of this computer: everything of a run is real but the ssh and the boot.

Machines are those of the cloud in memory; what `orch` sends, installs and runs lies in the machine's own
folder. A machine that is ended takes its folder and its processes with it, and its connections break.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import HostError
from orchestrator.hosts.command import checked
from orchestrator.hosts.here import HereChannel, HereHost
from orchestrator.model import Host, Machine
from orchestrator.providers import Ending
from orchestrator.providers.memory import MemoryProvider
from orchestrator.runs import follow
from orchestrator.runtime.fetch.mounting import mounted, unmount
from orchestrator.session import connect as connecting
from orchestrator.session import session
from tests.e2e.project import TINY_LOCK
from tests.forked import Forked
from tests.opened_cloud import open_instead
from tests.unit.far_verb import forked


class HereCloud(MemoryProvider):
    """`root` holds the machines. `taken_back`: ids of those that ended as spot machines do.

    `prepared`: a machine has at once what an earlier one in this process had got, as from an image.
    """

    def __init__(self, root: Path, prepared: bool = False) -> None:
        super().__init__()
        self.root = root
        self.prepared = prepared
        self.image = root.parents[1] / "image"  # beside the folders of this process's tests
        self.taken_back: set[str] = set()
        self.forked: dict[str, list[Forked]] = {}

    def base(self, identity: str) -> Path:
        return self.root / identity

    def ending(self, machine: Machine) -> Ending | None:
        if any(machine.id == each.id for each in self.alive()):
            return None
        taken = machine.id in self.taken_back
        return Ending("The cloud took it back." if taken else "It was ended.", preempted=taken)

    def take_back(self, machine: Machine) -> None:
        """End it as a preemption does."""
        self.taken_back.add(machine.id)
        self.kill(machine)

    def runs_here(self, identity: str) -> bool:
        return any(identity == machine.id for machine in self.alive())

    def _as_seen(self, made: Any) -> Machine:
        seen = super()._as_seen(made)
        if self.prepared and self.runs_here(seen.id) and not self.base(seen.id).exists():
            _prepare(self.base(seen.id), self.image)
        return replace(seen, detail={**seen.detail, "base": str(self.base(seen.id))})

    def _group_address(self, identity: str) -> str:  # noqa: ARG002 (all are on this computer)
        return "127.0.0.1"

    def _end(self, identity: str) -> None:
        super()._end(identity)
        for process in self.forked.pop(identity, ()):
            process.kill()
        _kill_everything_of(self.base(identity))
        for place in mounted():
            if place.startswith(f"{self.base(identity)}/"):
                unmount(place)
        if self.prepared:
            _keep(self.base(identity), self.image)
        shutil.rmtree(self.base(identity), ignore_errors=True)


class Door(HereHost):
    """The way onto a machine; it breaks when the machine ends."""

    def __init__(self, cloud: HereCloud, identity: str) -> None:
        super().__init__()
        self._cloud, self._identity = cloud, identity

    def _open(self, argv: Sequence[str], timeout: float | None, most: int) -> HereChannel:
        process = forked(words := checked(argv))
        if process is None:
            return super()._open(argv, timeout, most)
        running = [each for each in self._cloud.forked.get(self._identity, ()) if each.poll() is None]
        self._cloud.forked[self._identity] = [*running, process]
        return HereChannel(words, process, timeout, most)

    def _require(self) -> None:
        if not self._cloud.runs_here(self._identity):
            raise HostError(f"The connection to {self._identity} broke.")

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self._require()
        done = super().run(*args, **kwargs)
        self._require()
        return done

    def open(self, *args: Any, **kwargs: Any) -> Any:
        self._require()
        return super().open(*args, **kwargs)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        self._require()
        return super().get(*args, **kwargs)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        self._require()
        return super().put(*args, **kwargs)


_MADE: list[HereCloud] = []
"""The clouds of the test that runs."""


def end_all() -> None:
    """End every machine of the test, with all that runs there."""
    while _MADE:
        made = _MADE.pop()
        for machine in made.alive():
            made.kill(machine)


def cloud(root: Path, monkeypatch: pytest.MonkeyPatch, *, prepared: bool = False) -> HereCloud:
    """The cloud that `cloud: memory` means from now on; what is leased there is noted for this test alone."""
    if "ORCH_STATE_HOME" not in os.environ:
        monkeypatch.setenv("ORCH_STATE_HOME", str(root.with_name("state")))
    made = HereCloud(root, prepared)
    _MADE.append(made)
    open_instead(monkeypatch, "memory", f"{__name__}:_opened")
    monkeypatch.setattr("tests.unit.here_cloud._opened", lambda _state: made)

    def connect(_place: Any, _lease: Any, machine: Machine, *_: Any, **__: Any) -> Host:
        return Door(made, machine.id)

    monkeypatch.setattr(
        session,
        "connect_verified",
        lambda place, lease, _provider, machine, end: connect(place, lease, machine, end),
    )
    monkeypatch.setattr(follow, "connect", connect)
    monkeypatch.setattr(connecting, "connect", connect)
    # it would power this computer off
    monkeypatch.setattr(session.Session, "watch_idleness", lambda *_, **__: None)
    return made


def _opened(_state: Path | None) -> HereCloud:
    raise AssertionError("no cloud was set up")


def project(folder: Path, script: str, *, more: str = "") -> Path:
    """A project with one small package; its profile's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(script)
    (folder / "requirements.lock").write_text(TINY_LOCK)
    profile = folder / "orch.yaml"
    profile.write_text(
        "version: 1\nname: tiny\ncloud: memory\nresources: {cpus: 2}\nmax_duration: 30m\n"
        f"train:\n  command: python train.py\n{more}"
    )
    return profile


def _keep(base: Path, image: Path) -> None:
    """Take the machine's installed things as the image, if there is none yet; `of` names its folder."""
    if (image / "of").exists() or not list(base.glob("stacks/*.json")):
        return
    for name in ("python", "runtime", "stacks", "uv"):
        shutil.copytree(base / name, image / name, symlinks=True)
    (image / "of").write_text(str(base))


def _prepare(base: Path, image: Path) -> None:
    """A copy of the image in which every text and every link names this folder."""
    if not (image / "of").exists():
        return
    before, now = (image / "of").read_bytes(), os.fsencode(base)
    shutil.copytree(image / "uv", base / "uv", copy_function=os.link)
    for name in ("python", "runtime", "stacks"):
        shutil.copytree(image / name, base / name, symlinks=True)
    for path in base.glob("stacks/*/*"):
        for file in (path, *path.glob("*")) if path.name in ("bin", "pyvenv.cfg") else ():
            if file.is_symlink() and before in (target := os.fsencode(file.readlink())):
                file.unlink()
                file.symlink_to(os.fsdecode(target.replace(before, now)))
            elif file.is_file() and before in (text := file.read_bytes()):
                file.write_bytes(text.replace(before, now))


def _kill_everything_of(base: Path) -> None:
    """Every process that was started for a path below `base`, or works there."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes()
            if os.fsencode(base) in words or (entry / "cwd").readlink().is_relative_to(base):
                os.kill(int(entry.name), signal.SIGKILL)
