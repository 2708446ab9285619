"""Trees are sent: equal afterwards, or an error that names what is not."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from orchestrator import sync
from orchestrator.errors import SyncError
from orchestrator.hosts.here import HereChannel, HereHost
from orchestrator.model import Agent, Silent
from tests.unit.far_side import agent_at
from tests.unit.sync.trees import HOST, age, picture, push, there


def test_everything_survives(agent: Agent, root: Path) -> None:
    pushed = push(agent, root)
    assert picture(there(agent)) == picture(root)
    assert pushed.deleted == 0
    assert pushed.sent_files == 5  # of seven files two pairs have the same bytes
    assert sorted(path.name for path in there(agent).parent.iterdir()) == ["code", "code.manifest.json"]


def test_nothing_is_sent_twice(agent: Agent, root: Path) -> None:
    push(agent, root)
    assert dataclasses.replace(push(agent, root), manifest=None) == sync.Pushed(None, 0, 0, 0)  # type: ignore[arg-type]


def test_only_the_difference_travels(agent: Agent, root: Path) -> None:
    push(agent, root)
    (root / "src" / "a b.py").write_text("print(2)\n")
    (root / "new").write_text("1234567")
    (root / "private").unlink()
    (root / "run.sh").chmod(0o644)
    (root / "link").unlink()
    (root / "link").symlink_to("elsewhere")
    pushed = push(agent, root)
    assert picture(there(agent)) == picture(root)
    assert (pushed.sent_files, pushed.sent_bytes, pushed.deleted) == (2, 9 + 7, 1)


def test_a_path_may_become_another_kind(agent: Agent, root: Path) -> None:
    push(agent, root)
    (root / "nothing").unlink()
    (root / "nothing").mkdir()
    (root / "nothing" / "x").write_text("x")
    (root / "empty" / "deep").rmdir()
    (root / "empty").rmdir()
    (root / "empty").symlink_to("src")
    (root / "dangling").unlink()
    (root / "dangling").write_text("now a file")
    push(agent, root)
    assert picture(there(agent)) == picture(root)


def test_what_changed_there_is_put_right(agent: Agent, root: Path) -> None:
    push(agent, root)
    before = (there(agent) / "same").stat()
    (there(agent) / "same").write_text("print(7)\n")  # the same size
    (there(agent) / "stray").mkdir()
    (there(agent) / "stray" / "file").write_text("x")
    os.mkfifo(there(agent) / "pipe")
    (there(agent) / "private").unlink()
    assert push(agent, root).deleted == 3
    assert picture(there(agent)) == picture(root)
    assert before.st_size == (there(agent) / "same").stat().st_size


def test_a_change_whose_time_was_set_back_is_put_right(agent: Agent, root: Path) -> None:
    push(agent, root)
    place = there(agent) / "same"
    about = place.stat()
    with open(place, "r+b") as file:
        file.write(b"PRINT")
    os.utime(place, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert push(agent, root).sent_files == 1
    assert picture(there(agent)) == picture(root)
    assert push(agent, root, verify=True).sent_files == 0


def test_a_link_in_place_of_a_folder_leads_nowhere(agent: Agent, root: Path, tmp_path: Path) -> None:
    """Something there swapped a folder for a link to a place that is not ours."""
    push(agent, root)
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "precious").write_text("theirs")
    for name in ("src", "empty"):
        subprocess.run(["rm", "-r", str(there(agent) / name)], check=True)
        (there(agent) / name).symlink_to(outside)
    push(agent, root)
    assert picture(there(agent)) == picture(root)
    assert picture(outside) == {b"deep": "folder", b"precious": (0o644, b"theirs")}


def test_a_single_file(agent: Agent, root: Path) -> None:
    file = root / "run.sh"
    for _ in range(2):
        pushed = push(agent, file)
        assert there(agent).read_bytes() == file.read_bytes()
        assert stat.S_IMODE(there(agent).stat().st_mode) == 0o755
    assert pushed.sent_files == 0
    file.write_text("changed")
    assert push(agent, file).sent_files == 1
    assert there(agent).read_text() == "changed"
    push(agent, root)
    assert picture(there(agent)) == picture(root)
    push(agent, file)
    assert there(agent).read_text() == "changed"


def test_unreadable_files_are_named_and_nothing_is_sent(agent: Agent, root: Path) -> None:
    scan = dataclasses.replace(sync.scan(root), unreadable=(("secret", "Permission denied"),))
    with pytest.raises(SyncError, match=r"secret \(Permission denied\)"):
        sync.push(HOST, agent, scan, "code")
    assert not there(agent).exists()


@pytest.mark.parametrize("change", ["other", "gone", "longer", "shorter", "link", "pipe"])
def test_files_that_change_meanwhile_are_named(agent: Agent, root: Path, change: str) -> None:
    push(agent, root)
    before = picture(there(agent))
    (root / "changing").write_text("12345")
    (root / "steady").write_text("steady")
    scan = sync.scan(root)
    (root / "changing").unlink()
    if change == "link":
        (root / "changing").symlink_to("steady")
    elif change == "pipe":
        os.mkfifo(root / "changing")
    elif change != "gone":
        now = {"other": "54321", "longer": "54321" * 100000, "shorter": "123"}
        (root / "changing").write_text(now[change])
    with pytest.raises(SyncError, match=r"^changing changed while being sent"):
        sync.push(HOST, agent, scan, "code")
    assert picture(there(agent)) == before
    (root / "changing").unlink(missing_ok=True)
    (root / "changing").write_text("12345")
    assert push(agent, root).sent_files == 1  # the steady one came the first time


class Overheard(HereHost):
    """Keeps the bytes that are sent."""

    def __init__(self) -> None:
        self.sent = bytearray()

    def open(self, argv: Sequence[str]) -> HereChannel:
        channel = super().open(argv)
        write = channel.write

        def overheard(data: bytes) -> None:
            self.sent += data
            write(data)

        channel.write = overheard  # type: ignore[method-assign]
        return channel


class AtFirstFile(Silent):
    """Acts once, when the first file was sent."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._acts = [act]

    def transfer(self, *_: object) -> None:
        if self._acts:
            self._acts.pop()()


def test_nothing_is_read_through_a_folder_that_becomes_a_link_meanwhile(
    agent: Agent, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("a secret")
    (root / "src" / "key").write_text("a sample")
    host, scan = Overheard(), sync.scan(root)

    def replace() -> None:
        (root / "src").rename(tmp_path / "moved")
        (root / "src").symlink_to(tmp_path / "outside")

    with pytest.raises(SyncError, match=r"^src/größe.txt, src/key changed while being sent"):
        sync.push(host, agent, scan, "code", AtFirstFile(replace))
    assert b"#!/bin/sh" in host.sent
    assert b"a secret" not in host.sent


@pytest.mark.parametrize("become", ["gone", "link"])
def test_a_project_that_goes_away_between_list_and_transfer_is_listed_again(
    agent: Agent, root: Path, tmp_path: Path, become: str
) -> None:
    looks = []

    def look() -> sync.Scan:
        looks.append(found := sync.scan(root))
        if len(looks) == 1:
            root.rename(tmp_path / "moved")
            if become == "link":
                root.symlink_to(tmp_path / "moved")
        return found

    if become == "gone":
        with pytest.raises(SyncError, match="does not exist"):
            sync.push_latest(HOST, agent, look, "code")
    else:
        assert sync.push_latest(HOST, agent, look, "code").root == tmp_path / "moved"
        assert picture(there(agent)) == picture(tmp_path / "moved")


def test_a_file_that_grows_is_sent_as_it_was_listed(agent: Agent, root: Path) -> None:
    """As `orch train > log` does inside the project."""
    (root / "log").write_text("one\n")
    scan = sync.scan(root)
    with open(root / "log", "a") as file:
        file.write("two\n" * 100_000)
    sync.push(HOST, agent, scan, "code")
    assert (there(agent) / "log").read_text() == "one\n"
    push(agent, root)
    assert picture(there(agent)) == picture(root)


def test_a_file_that_changes_between_list_and_transfer_is_listed_again(agent: Agent, root: Path) -> None:
    writes = iter(["two", "six", "ten"])

    def look() -> sync.Scan:
        found = sync.scan(root)
        if (content := next(writes, None)) is not None:
            (root / "same").write_text(content)
        return found

    next(writes)
    sent = sync.push_latest(HOST, agent, look, "code")
    assert sent.manifest == sync.scan(root).manifest
    assert (there(agent) / "same").read_text() == "ten"


def test_a_file_that_never_stops_changing_is_named(agent: Agent, root: Path) -> None:
    numbers = iter(range(1000, 1100))

    def look() -> sync.Scan:
        found = sync.scan(root)
        (root / "same").write_text(str(next(numbers)))
        return found

    with pytest.raises(SyncError, match=r"^same changed while being sent"):
        sync.push_latest(HOST, agent, look, "code")
    assert next(numbers) == 1003


def test_a_full_disk_is_an_error_with_numbers_and_leaves_the_old_tree(tmp_path: Path, root: Path) -> None:
    small = "real = os.statvfs; "
    small += "os.statvfs = lambda path: os.statvfs_result([512, 512, 9, 9, 9, *list(real(path))[5:]])"
    agent = agent_at(tmp_path / "far")
    push(agent, root)
    before = picture(there(agent))
    full = agent_at(tmp_path / "full", before=small)
    (root / "big").write_bytes(b"x" * 5000)
    with pytest.raises(SyncError, match=r"5,000 bytes are needed, 4,608 bytes are free"):
        push(dataclasses.replace(full, base=agent.base), root)
    assert picture(there(agent)) == before


def test_a_disk_that_fills_on_the_way_leaves_the_old_tree_and_no_litter(tmp_path: Path, root: Path) -> None:
    agent = agent_at(tmp_path / "far")
    push(agent, root)
    before = picture(there(agent))
    # A limit on the size of any file fails a write as a full disk does, but for the number of the error.
    limit = "import resource, signal, errno; errno.ENOSPC = errno.EFBIG; "
    limit += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))"
    full = agent_at(tmp_path / "full", before=limit)
    (root / "a big").write_bytes(os.urandom(3 << 20))
    (root / "a small").write_bytes(b"x")
    with pytest.raises(SyncError, match=r"too small: 3,145,729 bytes are needed"):
        push(dataclasses.replace(full, base=agent.base), root)
    assert picture(there(agent)) == before
    assert not there(agent).with_name("code.part").exists()
    push(agent, root)
    assert picture(there(agent)) == picture(root)


def test_what_the_other_side_says_last_is_in_the_error(tmp_path: Path, root: Path) -> None:
    agent = agent_at(tmp_path / "far", before="sys.exit('the interpreter is broken')")
    with pytest.raises(SyncError, match="the interpreter is broken"):
        push(agent, root)


def test_two_at_once_take_turns(agent: Agent, root: Path) -> None:
    push(agent, root)
    with HOST.open(agent.argv("apply", str(there(agent)))) as waiting:
        (root / "new").write_text("x")
        push(agent, root)
        waiting.close_stdin()
        assert waiting.wait(20).returncode == 1
    assert picture(there(agent)) == picture(root)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a.part", "a b"])
def test_what_cannot_be_the_name_of_a_tree(agent: Agent, root: Path, name: str) -> None:
    with pytest.raises(ValueError):
        sync.push(HOST, agent, sync.scan(root), name)


CRASH = """
steps = int(os.environ["CRASH_AT"])
def crash_before(name):
    real = getattr(os, name)
    def call(*a, **k):
        global steps
        steps -= 1
        if steps < 0: os._exit(9)
        return real(*a, **k)
    setattr(os, name, call)
for name in "open rename replace unlink rmdir mkdir makedirs symlink fchmod utime fsync".split():
    crash_before(name)
"""


def test_killed_at_any_instruction_and_repeated_it_is_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every effect on the file system is a point to die before; a repeated push converges from each."""
    sound = agent_at(tmp_path / "sound")
    crashing = agent_at(tmp_path / "crashing", before=CRASH)
    first = tmp_path / "first"
    (first / "src").mkdir(parents=True)
    (first / "src" / "old").write_text("old")
    (first / "nothing").mkdir()
    (first / "link").write_text("was a file")
    age(first)
    small = tmp_path / "small"
    (small / "src").mkdir(parents=True)
    (small / "src" / "x").write_text("new")
    (small / "nothing").write_text("new")
    (small / "link").symlink_to("src")
    age(small)
    died = 0
    for step in range(1000):
        base = tmp_path / f"base-{step}"
        push(dataclasses.replace(sound, base=str(base)), first)
        monkeypatch.setenv("CRASH_AT", str(step))
        try:
            push(dataclasses.replace(crashing, base=str(base)), small)
        except SyncError:
            died += 1
        else:
            break
        pushed = push(dataclasses.replace(sound, base=str(base)), small)
        assert pushed.manifest == sync.scan(small).manifest
        assert picture(base / "trees" / "code") == picture(small)
        assert sorted(path.name for path in (base / "trees").glob("*.p*")) in (
            [],
            ["code.manifest.json.part"],
        )
    assert died > 20
