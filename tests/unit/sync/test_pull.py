"""Trees are brought back: whole, within their folder, and nothing of the user is overwritten."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator import sync
from orchestrator.errors import HostError, LocalError, SyncError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Channel, Entry
from tests.conftest import ROOT
from tests.unit.sync.trees import HASH, HOST, picture


@pytest.fixture
def outputs(agent: Agent, root: Path) -> tuple[Agent, Path, tuple[Entry, ...]]:
    return agent, root, sync.far_scan(HOST, agent, str(root)).entries


def test_pull_brings_everything(outputs: tuple[Agent, Path, tuple[Entry, ...]], tmp_path: Path) -> None:
    agent, root, entries = outputs
    target = tmp_path / "runs" / "r1"
    pulled = sync.pull(HOST, agent, str(root), entries, target)
    assert picture(target) == picture(root)
    assert pulled.fetched_files == 7
    assert sync.pull(HOST, agent, str(root), entries, target).fetched_files == 0
    assert [path.name for path in target.parent.iterdir()] == ["r1"]


def test_what_was_here_stays_unless_it_is_replaced(
    outputs: tuple[Agent, Path, tuple[Entry, ...]], tmp_path: Path
) -> None:
    agent, root, entries = outputs
    target = tmp_path / "target"
    (target / "src").mkdir(parents=True)
    (target / "src" / "mine").write_text("mine")
    (target / "same").write_text("an older one")
    (target / "link").write_text("a file before")
    sync.pull(HOST, agent, str(root), entries, target)
    assert picture(target) == picture(root) | {b"src/mine": (0o644, b"mine")}


def test_entries_need_not_name_their_folders(
    outputs: tuple[Agent, Path, tuple[Entry, ...]], tmp_path: Path
) -> None:
    agent, root, entries = outputs
    files = [entry for entry in entries if entry.kind == "file"]
    sync.pull(HOST, agent, str(root), files, tmp_path / "target")
    assert (tmp_path / "target" / "src" / "a b.py").read_text() == "print(1)\n"


FILE = Entry("f", "file", 1, 0o644, HASH)


@pytest.mark.parametrize(
    "entries",
    [
        [Entry("/etc/x", "file", 1, 0o644, HASH)],
        [Entry("../x", "file", 1, 0o644, HASH)],
        [Entry("a/../../x", "dir")],
        [Entry("a\0b", "dir")],
        [Entry("C:\\x", "dir")],
        [Entry("", "dir")],
        [Entry("l", "link", target="/etc")],
        [Entry("l", "link", target="../../x")],
        [Entry("l", "link", target="d"), Entry("l/x", "file", 1, 0o644, HASH)],
        [Entry("d", "device")],
        [FILE, FILE],
        [FILE, Entry("f/x", "file", 1, 0o644, HASH)],
    ],
)
def test_hostile_entries_are_refused_and_nothing_is_written(
    agent: Agent, tmp_path: Path, entries: list[Entry]
) -> None:
    good = tmp_path / "source"
    good.mkdir()
    (good / "ok").write_text("x")
    all_entries = [*sync.far_scan(HOST, agent, str(good)).entries, *entries]
    with pytest.raises(SyncError, match="must not be written"):
        sync.pull(HOST, agent, str(good), all_entries, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert not (tmp_path / "target.part").exists()


def test_a_link_planted_there_is_not_read_through(agent: Agent, tmp_path: Path) -> None:
    """The entries say a plain file; what lies there now is a link to something secret."""
    (tmp_path / "secret").write_text("s")
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d" / "f").write_text("s")
    entries = sync.far_scan(HOST, agent, str(source)).entries
    (source / "d" / "f").unlink()
    (source / "d" / "f").symlink_to(tmp_path / "secret")
    with pytest.raises(SyncError, match="d/f changed on the machine"):
        sync.pull(HOST, agent, str(source), entries, tmp_path / "target")
    assert not (tmp_path / "target" / "d").exists()


def test_a_folder_of_the_users_is_not_replaced(
    outputs: tuple[Agent, Path, tuple[Entry, ...]], tmp_path: Path
) -> None:
    agent, root, entries = outputs
    (tmp_path / "target" / "same").mkdir(parents=True)
    with pytest.raises(SyncError, match="a folder here"):
        sync.pull(HOST, agent, str(root), entries, tmp_path / "target")


def test_changed_files_are_named_and_the_others_kept_for_the_next_attempt(
    outputs: tuple[Agent, Path, tuple[Entry, ...]], tmp_path: Path
) -> None:
    agent, root, entries = outputs
    target = tmp_path / "target"
    target.mkdir()
    (target / "same").write_text("old")
    (root / "same").write_text("print(8)\n")
    (root / "private").unlink()
    with pytest.raises(SyncError, match="private, same changed on the machine"):
        sync.pull(HOST, agent, str(root), entries, target)
    assert picture(target) == {b"same": (0o644, b"old")}
    pulled = sync.pull(HOST, agent, str(root), sync.far_scan(HOST, agent, str(root)).entries, target)
    assert pulled.fetched_files == 0  # what came in its place the first time is what is listed now
    assert picture(target) == picture(root)


class Cut(HereHost):
    """Contact is lost after so many bytes were read."""

    def __init__(self, after: int) -> None:
        self.after = after

    def open(self, argv: object) -> Channel:  # type: ignore[override]
        channel = super().open(argv)  # type: ignore[arg-type]
        real = channel.read

        def read(limit: int) -> bytes:
            if not self.after:
                raise HostError("Contact was lost.")
            data = real(min(limit, 4096, self.after))
            self.after -= len(data)
            return data

        channel.read = read  # type: ignore[method-assign]
        return channel


def test_an_interrupted_pull_goes_on_where_it_was(agent: Agent, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(10):
        (source / f"{number}").write_bytes(os.urandom(10_000))
    entries = sync.far_scan(HOST, agent, str(source)).entries
    target = tmp_path / "target"
    with pytest.raises(HostError):
        sync.pull(Cut(45_000), agent, str(source), entries, target)
    assert picture(target) == {}
    pulled = sync.pull(HOST, agent, str(source), entries, target)
    assert 5 <= pulled.fetched_files <= 6
    assert picture(target) == picture(source)


@pytest.mark.parametrize("few", [3, 100])
def test_no_file_takes_its_place_before_it_is_on_the_disk(
    outputs: tuple[Agent, Path, tuple[Entry, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    few: int,
) -> None:
    """Nor is the pull over before its folders are. What an interrupted pull left counts as not written."""
    agent, root, entries = outputs
    target = tmp_path / "target"
    with pytest.raises(HostError):
        sync.pull(Cut(40), agent, str(root), entries, target)
    assert [path for path in tmp_path.glob("target.part/files/**/*") if path.is_file()]
    pulling = importlib.import_module("orchestrator.sync.pull")
    written: set[int] = set()
    placed: list[bool] = []
    fsync, syncfs, rename = os.fsync, pulling.libc().syncfs, os.rename

    def one(fd: int) -> None:
        fsync(fd)
        written.add(os.fstat(fd).st_ino)

    def every(fd: int) -> int:
        written.update(path.lstat().st_ino for path in (target, *tmp_path.glob("target*/**/*")))
        return int(syncfs(fd))

    def place(source: object, name: bytes, *, src_dir_fd: int | None = None, dst_dir_fd: int) -> None:
        if src_dir_fd is not None:
            placed.append(os.stat(name, dir_fd=src_dir_fd).st_ino in written)
            written.discard(os.fstat(dst_dir_fd).st_ino)
        rename(source, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)  # type: ignore[call-overload]

    monkeypatch.setattr(pulling, "_FEW", few)
    monkeypatch.setattr(pulling, "libc", lambda: SimpleNamespace(syncfs=every))
    monkeypatch.setattr(os, "fsync", one)
    monkeypatch.setattr(os, "rename", place)
    sync.pull(HOST, agent, str(root), entries, target)
    assert placed == [True] * 7
    folders = [target, *(path for path in target.rglob("*") if path.is_dir() and not path.is_symlink())]
    assert written >= {folder.stat().st_ino for folder in folders if any(folder.iterdir())}
    assert picture(target) == picture(root)


KILL_PULL = """
import os, sys
sys.path.insert(0, sys.argv[5])
from pathlib import Path
from orchestrator import sync
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent
agent = Agent(sys.executable, sys.argv[1], sys.argv[2])
source, target = sys.argv[3], Path(sys.argv[4])
entries = sync.far_scan(HereHost(), agent, source).entries
EFFECTS = "open rename replace unlink mkdir symlink fchmod fsync".split()
real = {name: getattr(os, name) for name in EFFECTS}
for step in range(1000):
    child = os.fork()
    if child == 0:
        left = [step]
        def dying(name):
            def call(*a, **k):
                left[0] -= 1
                if left[0] < 0:
                    os._exit(9)
                return real[name](*a, **k)
            return call
        for name in real:
            setattr(os, name, dying(name))
        sync.pull(HereHost(), agent, source, entries, target.with_name(f"t{step}"))
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
    place = target.with_name(f"t{step}")
    for file in place.glob("*"):
        assert file.is_dir() or file.is_symlink() or file.read_text() == "newer", file
    sync.pull(HereHost(), agent, source, entries, place)
    assert (place / "d" / "f").read_text() == "newer" and (place / "a").read_text() == "newer"
    assert os.readlink(place / "l") == "a"
    assert not place.with_name(f"t{step}.part").exists()
print(step)
"""


def test_a_pull_killed_at_any_instruction_and_repeated_is_whole(agent: Agent, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d" / "f").write_text("newer")
    (source / "a").write_text("newer")
    (source / "l").symlink_to("a")
    repo = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", KILL_PULL, agent.root, agent.base, str(source), str(tmp_path / "t"), repo],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15


def test_a_disk_that_is_too_small_here(
    outputs: tuple[Agent, Path, tuple[Entry, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, root, entries = outputs
    real = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result([1, 1, 1 << 40, 1, 1, *list(real)[5:]]))
    with pytest.raises(LocalError, match="has 1 B free"):
        sync.pull(HOST, agent, str(root), entries, tmp_path / "target")
