"""The control group that holds one machine's processes and its limits, in version 1, 2 or both."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

WANTED = ("memory", "cpu", "pids", "freezer")
CPU_PERIOD_US = 100_000


@dataclass(frozen=True)
class Hierarchies:
    """Mount points of the control groups: version 1 by controller, version 2 once, with its controllers."""

    v1: Mapping[str, Path]
    v2: Path | None = None
    v2_controllers: frozenset[str] = frozenset()

    def missing(self) -> tuple[str, ...]:
        """Return the WANTED controllers that no hierarchy has. Version 2 can always freeze."""
        return tuple(name for name in WANTED if name not in self.v1 and not self._in_v2(name))

    def _in_v2(self, controller: str) -> bool:
        return self.v2 is not None and (controller == "freezer" or controller in self.v2_controllers)

    def for_v2(self) -> frozenset[str]:
        """Return the wanted controllers that only version 2 has."""
        return frozenset(name for name in WANTED if name not in self.v1 and self._in_v2(name))


@dataclass(frozen=True)
class Limits:
    """`cpus` in processors, `memory` in bytes, `pids` in processes and threads."""

    cpus: float
    memory: int
    pids: int


def hierarchies(mounts: str) -> Hierarchies:
    """Parse the text of /proc/mounts. Read-only mounts are left out, because they cannot be used."""
    v1: dict[str, Path] = {}
    v2: Path | None = None
    controllers: frozenset[str] = frozenset()
    for line in mounts.splitlines():
        _, where, kind, options = line.split()[:4]
        words = options.split(",")
        if "ro" in words:
            continue
        if kind == "cgroup":
            v1.update({word: Path(where) for word in words if word in (*WANTED, "cpuacct")})
        elif kind == "cgroup2":
            v2, controllers = Path(where), _delegable(Path(where))
    return Hierarchies(v1, v2, controllers)


def _delegable(mount: Path) -> frozenset[str]:
    """Return the controllers that children of `mount` can have; this enables them."""
    found = set()
    for name in set(_read(mount / "cgroup.controllers").split()) & set(WANTED):
        try:
            (mount / "cgroup.subtree_control").write_text(f"+{name}")
            found.add(name)
        except OSError:  # the root group has processes, as in a container, so nothing can be delegated
            continue
    return frozenset(found)


INSIDE = "inside"
"""The group inside a machine's group that contains its processes.

Root in a machine can mount control groups again in a user namespace, and change its own group and those
below. So the limits are set twice: on this group, where the machine sees them, and on the one above, where it
cannot change them.
"""


class Cgroup:
    """The control group of one machine. `name` is relative, "orch/m-1". Every method may be called again."""

    def __init__(self, name: str, where: Hierarchies) -> None:
        self._name = name
        self._where = where

    def create(self, limits: Limits) -> None:
        for folder in self._folders():
            _make(folder)
            _make(folder / INSIDE)
        for controller, folder in self._v1():
            for each in (folder, folder / INSIDE):
                _write_all(each, _v1_settings(controller, limits))
        if self._where.v2 is not None:
            wanted = self._where.for_v2()
            enabled = " ".join(f"+{name}" for name in sorted(wanted - {"freezer"}))
            folder = self._where.v2 / self._name
            if enabled:
                for above in (folder.parent, folder):
                    (above / "cgroup.subtree_control").write_text(enabled)
            for name in wanted:
                for each in (folder, folder / INSIDE):
                    _write_all(each, _v2_settings(name, limits))

    def entrances(self) -> list[str]:
        """Return the files into which a process writes 0 to enter the group."""
        return [str(folder / INSIDE / "cgroup.procs") for folder in self._folders()]

    def visible(self) -> list[str]:
        """Return `name=folder` for each part to show the machine at /sys/fs/cgroup/name (version 2:
        no name).
        """
        if self._where.v1:
            visible = [(controller, folder) for controller, folder in self._v1() if controller != "freezer"]
            return [f"{controller}={folder / INSIDE}" for controller, folder in visible]
        return [f"={folder / INSIDE}" for folder in self._folders()]

    def pids(self) -> set[int]:
        """Return the ids of processes in the group and below; none if the group is removed meanwhile."""
        tops = (top for folder in self._folders() for top, _, _ in os.walk(folder))
        return {int(line) for top in tops for line in _read(Path(top) / "cgroup.procs").split()}

    def freeze(self, frozen: bool) -> bool:
        """Stop or continue every process at once; False if there is no freezer, or the group is gone."""
        if "freezer" in self._where.v1:
            target, value = self._where.v1["freezer"] / self._name / "freezer.state", _V1_FREEZER[frozen]
        elif self._where.v2 is not None:
            target, value = self._where.v2 / self._name / "cgroup.freeze", str(int(frozen))
        else:
            return False
        try:
            target.write_text(value)
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise
        return True

    def remove(self, patience_s: float = 5.0) -> bool:
        """Remove the empty group; False if processes stay in it for `patience_s`."""
        end = time.monotonic() + patience_s
        for folder in self._folders():
            while not _removed_with_all_below(folder):
                if time.monotonic() > end:
                    return False
                time.sleep(0.01)
            _removed(folder.parent)  # shared by all machines: removed with the last one
        return True

    def _v1(self) -> Iterator[tuple[str, Path]]:
        for controller, mount in self._where.v1.items():
            yield controller, mount / self._name

    def _folders(self) -> list[Path]:
        folders = {folder for _, folder in self._v1()}
        if self._where.v2 is not None and self._where.for_v2():
            folders.add(self._where.v2 / self._name)
        return sorted(folders)


_GONE = frozenset((errno.ENOENT, errno.ENODEV))
"""Errors of reading a group's file after the group was removed; the second one while it is being removed."""

_V1_FREEZER = {True: "FROZEN", False: "THAWED"}


def _v1_settings(controller: str, limits: Limits) -> dict[str, str]:
    return {
        "memory": {
            "memory.limit_in_bytes": str(limits.memory),
            "memory.memsw.limit_in_bytes": str(limits.memory),
        },
        "cpu": {
            "cpu.cfs_period_us": str(CPU_PERIOD_US),
            "cpu.cfs_quota_us": str(int(limits.cpus * CPU_PERIOD_US)),
        },
        "pids": {"pids.max": str(limits.pids)},
    }.get(controller, {})


def _v2_settings(controller: str, limits: Limits) -> dict[str, str]:
    return {
        "memory": {"memory.max": str(limits.memory), "memory.swap.max": "0"},
        "cpu": {"cpu.max": f"{int(limits.cpus * CPU_PERIOD_US)} {CPU_PERIOD_US}"},
        "pids": {"pids.max": str(limits.pids)},
    }.get(controller, {})


def _write_all(folder: Path, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        if (folder / name).exists():  # a file may be missing: swap accounting is an option of the kernel
            (folder / name).write_text(value)


def _make(folder: Path) -> None:
    while True:
        folder.parent.mkdir(exist_ok=True)
        try:
            folder.mkdir(exist_ok=True)
            return
        except FileNotFoundError:  # the last machine has just removed the parent
            continue


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def _removed_with_all_below(folder: Path) -> bool:
    """Remove a group, after the groups inside it, which a machine may have created."""
    try:
        below = [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]
    except OSError as error:
        return error.errno in _GONE
    return all(_removed_with_all_below(each) for each in below) and _removed(folder)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
