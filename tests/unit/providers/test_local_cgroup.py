"""Control groups of both versions, on plain folders that look like them."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from orchestrator.providers.local.cgroup import Cgroup, Hierarchies, Limits, hierarchies

LIMITS = Limits(cpus=1.5, memory=300 << 20, pids=77)
SETTINGS = (
    *(
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "cpu.cfs_period_us",
        "cpu.cfs_quota_us",
        "pids.max",
    ),
    *("memory.max", "memory.swap.max", "cpu.max", "cpu.stat", "cgroup.freeze", "freezer.state"),
)


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new group's folder is never empty: the kernel puts its files there, and takes them away with it."""
    make, remove = Path.mkdir, Path.rmdir

    def mkdir(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        new = not self.exists()
        make(self, mode, parents, exist_ok)
        if new and "orch" in self.parts:
            for name in (*SETTINGS, "cgroup.procs", "cgroup.subtree_control"):
                (self / name).touch()

    def rmdir(self: Path) -> None:
        if any(path.is_dir() for path in self.glob("*")):
            raise OSError(39, "not empty")
        for path in self.glob("*"):
            path.unlink()
        remove(self)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)


def read(folder: Path, name: str) -> str:
    return (folder / "orch/m-1" / name).read_text()


@pytest.fixture
def v1(tmp_path: Path) -> Hierarchies:
    mounts = []
    for name in ("memory", "cpu,cpuacct", "pids", "freezer"):
        folder = tmp_path / name
        folder.mkdir()
        mounts.append(f"cgroup {folder} cgroup rw,nosuid,{name} 0 0")
    return hierarchies("\n".join(["proc /proc proc rw 0 0", *mounts]))


@pytest.fixture
def v2(tmp_path: Path) -> Hierarchies:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    return hierarchies(f"cgroup2 {tmp_path} cgroup2 rw,nosuid 0 0")


def test_version_1_is_limited_in_each_hierarchy(v1: Hierarchies, tmp_path: Path) -> None:
    assert v1.missing() == ()
    Cgroup("orch/m-1", v1).create(LIMITS)
    assert read(tmp_path / "memory", "memory.limit_in_bytes") == str(300 << 20)
    assert read(tmp_path / "memory", "memory.memsw.limit_in_bytes") == str(300 << 20)
    assert read(tmp_path / "cpu,cpuacct", "cpu.cfs_quota_us") == "150000"
    assert read(tmp_path / "pids", "pids.max") == "77"


def test_version_2_is_limited_in_one_folder_and_its_parents_pass_the_controllers_on(
    v2: Hierarchies, tmp_path: Path
) -> None:
    assert v2.missing() == ()
    Cgroup("orch/m-1", v2).create(LIMITS)
    assert read(tmp_path, "memory.max") == str(300 << 20)
    assert read(tmp_path, "memory.swap.max") == "0"
    assert read(tmp_path, "cpu.max") == "150000 100000"
    assert read(tmp_path, "pids.max") == "77"
    assert (tmp_path / "orch/cgroup.subtree_control").read_text() == "+cpu +memory +pids"


@pytest.mark.parametrize(("version", "name"), [("v1", "memory.limit_in_bytes"), ("v2", "memory.max")])
def test_the_limits_hold_above_the_group_that_a_machine_can_reach(
    version: str, name: str, request: pytest.FixtureRequest
) -> None:
    group = Cgroup("orch/m-1", request.getfixturevalue(version))
    group.create(LIMITS)
    (procs,) = [Path(each) for each in group.entrances() if (Path(each).parent / name).read_text()]
    assert (procs.parent / name).read_text() == (procs.parent.parent / name).read_text() == str(300 << 20)
    (procs.parent / "made-in-there").mkdir()
    procs.write_text("7\n")
    assert group.pids() >= {7}
    assert group.remove(0.1)
    assert not procs.parent.parent.exists()


def test_what_no_hierarchy_offers_is_missing(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    assert hierarchies(f"cgroup2 {tmp_path} cgroup2 rw 0 0").missing() == ("cpu", "pids")
    assert hierarchies(f"cgroup2 {tmp_path} cgroup2 ro,nosuid 0 0").missing() == (
        "memory",
        "cpu",
        "pids",
        "freezer",
    )
    assert hierarchies("").missing() == ("memory", "cpu", "pids", "freezer")


def test_both_versions_at_once_share_the_work(v1: Hierarchies, tmp_path: Path) -> None:
    unified = tmp_path / "unified"
    unified.mkdir()
    (unified / "cgroup.controllers").write_text("pids\n")
    (unified / "cgroup.subtree_control").write_text("")
    both = Hierarchies({"memory": v1.v1["memory"]}, unified, frozenset({"pids"}))
    assert both.missing() == ("cpu",)
    group = Cgroup("orch/m-1", both)
    group.create(LIMITS)
    assert read(tmp_path / "memory", "memory.limit_in_bytes") == str(300 << 20)
    assert read(unified, "pids.max") == "77"
    assert len(group.entrances()) == 2


@pytest.mark.parametrize(("version", "frozen", "thawed"), [("v1", "FROZEN", "THAWED"), ("v2", "1", "0")])
def test_freezing(
    version: str, frozen: str, thawed: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    where: Hierarchies = request.getfixturevalue(version)
    group = Cgroup("orch/m-1", where)
    assert not group.freeze(True)  # there is no such group yet
    group.create(LIMITS)
    folder, name = (tmp_path / "freezer", "freezer.state") if version == "v1" else (tmp_path, "cgroup.freeze")
    assert group.freeze(True)
    assert read(folder, name) == frozen
    assert group.freeze(False)
    assert read(folder, name) == thawed
    assert not Cgroup("orch/m-1", Hierarchies({})).freeze(True)


def test_a_group_that_is_being_removed_is_not_frozen(v1: Hierarchies, tmp_path: Path) -> None:
    """The kernel answers ENODEV then, as it does for a device that nobody drives."""
    group = Cgroup("orch/m-1", v1)
    group.create(LIMITS)
    state = tmp_path / "freezer/orch/m-1/freezer.state"
    state.unlink()
    try:
        os.mknod(state, stat.S_IFCHR | 0o600, os.makedev(10, 253))
        state.write_text("THAWED")
    except OSError as error:
        if error.errno != errno.ENODEV:
            pytest.skip("no device file can be made, or opened, here")
    assert not group.freeze(False)


def test_processes_of_all_hierarchies_are_found(v1: Hierarchies, tmp_path: Path) -> None:
    group = Cgroup("orch/m-1", v1)
    assert group.pids() == set()
    group.create(LIMITS)
    (tmp_path / "memory/orch/m-1/cgroup.procs").write_text("12\n34\n")
    (tmp_path / "pids/orch/m-1/cgroup.procs").write_text("34\n56\n")
    assert group.pids() == {12, 34, 56}


def test_two_that_remove_a_group_do_not_disturb_each_other(v1: Hierarchies) -> None:
    """Its supervisor, and a client that asks to end it: what one has removed is no failure of the other."""
    group, ended = Cgroup("orch/m-1", v1), threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            for mount in v1.v1.values():
                os.makedirs(mount / "orch/m-1/inside/own/more", exist_ok=True)  # noqa: PTH103
            assert group.remove()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(1000):
            assert group.pids() == set()
        assert other.is_alive()
    finally:
        ended.set()
        other.join()


def test_removal_takes_the_shared_parent_only_with_the_last(v2: Hierarchies, tmp_path: Path) -> None:
    groups = [Cgroup(f"orch/m-{number}", v2) for number in (1, 2)]
    for group in groups:
        group.create(LIMITS)
        group.create(LIMITS)
    assert groups[0].remove()
    assert (tmp_path / "orch/m-2").exists()
    assert groups[1].remove()
    assert groups[1].remove()
    assert not (tmp_path / "orch").exists()


def test_inside_they_are_seen_where_programs_look(v1: Hierarchies, v2: Hierarchies, tmp_path: Path) -> None:
    assert f"memory={tmp_path}/memory/orch/m-1/inside" in Cgroup("orch/m-1", v1).visible()
    assert Cgroup("orch/m-1", v2).visible() == [f"={tmp_path}/orch/m-1/inside"]
