"""Trees there and back: equal, or an error that names what is not."""

# ruff: noqa: PTH102, PTH115, PTH118, PTH208, PTH211  (names are bytes here)

from __future__ import annotations

import dataclasses
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator import sync
from orchestrator.errors import HostError, SyncError
from orchestrator.hosts import HereHost
from orchestrator.model import Agent, Channel, Entry
from tests.unit.far_side import agent_at

HOST = HereHost()
HASH = "ab" * 32


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return agent_at(tmp_path / "far")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with everything in it that is easily lost."""
    top = tmp_path / "project"
    (top / "empty" / "deep").mkdir(parents=True)
    (top / "src").mkdir()
    (top / "src" / "a b.py").write_text("print(1)\n")
    (top / "src" / "größe.txt").write_text("é")
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "private").write_text("p")
    (top / "private").chmod(0o600)
    (top / "nothing").write_bytes(b"")
    (top / "same").write_text("print(1)\n")
    (top / "link").symlink_to("src/a b.py")
    (top / "dangling").symlink_to("not there")
    os.close(os.open(os.fsencode(top) + b"/\xff", os.O_CREAT | os.O_WRONLY, 0o644))
    age(top)
    return top


def age(top: Path, seconds: float = 60) -> None:
    """Make files look written a while ago, as most are."""
    for path in top.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (time.time() - seconds,) * 2)


def picture(top: Path) -> dict[bytes, object]:
    """All that is below a folder, seen without the code under test."""
    found: dict[bytes, object] = {}
    for folder, folders, files in os.walk(os.fsencode(top)):
        for name in folders + files:
            path = os.path.join(folder, name)
            about = os.lstat(path)
            if stat.S_ISLNK(about.st_mode):
                what: object = os.readlink(path)
            elif stat.S_ISDIR(about.st_mode):
                what = "folder"
            else:
                what = (stat.S_IMODE(about.st_mode), Path(os.fsdecode(path)).read_bytes())
            found[os.path.relpath(path, os.fsencode(top))] = what
    return found


def there(agent: Agent, name: str = "code") -> Path:
    return Path(sync.tree_path(agent, name))


def push(agent: Agent, root: Path, **options: bool) -> sync.Pushed:
    return sync.push(HOST, agent, sync.scan(root), "code", **options)


# ---------------------------------------------------------------- push


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


def test_a_change_that_hides_from_the_stamp_is_found_by_verify(agent: Agent, root: Path) -> None:
    push(agent, root)
    place = there(agent) / "same"
    about = place.stat()
    with open(place, "r+b") as file:
        file.write(b"PRINT")
    os.utime(place, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert push(agent, root).sent_files == 0  # trusted: size, time and inode are what they were
    assert push(agent, root, verify=True).sent_files == 1
    assert picture(there(agent)) == picture(root)


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


@pytest.mark.parametrize("change", ["other", "gone", "longer", "link"])
def test_files_that_change_meanwhile_are_named(agent: Agent, root: Path, change: str) -> None:
    push(agent, root)
    before = picture(there(agent))
    (root / "changing").write_text("12345")
    (root / "steady").write_text("steady")
    scan = sync.scan(root)
    (root / "changing").unlink()
    if change == "link":
        (root / "changing").symlink_to("steady")
    elif change != "gone":
        (root / "changing").write_text({"other": "54321", "longer": "12345" * 100000}[change])
    with pytest.raises(SyncError, match=r"^changing changed while being sent"):
        sync.push(HOST, agent, scan, "code")
    assert picture(there(agent)) == before
    (root / "changing").unlink(missing_ok=True)
    (root / "changing").write_text("12345")
    assert push(agent, root).sent_files == 1  # the steady one came the first time


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


# ---------------------------------------------------------------- scan


def test_a_scan_is_the_same_on_both_sides(agent: Agent, root: Path) -> None:
    assert sync.far_scan(HOST, agent, str(root)) == sync.scan(root).manifest


def test_a_scan_without_a_root(agent: Agent, tmp_path: Path) -> None:
    with pytest.raises(SyncError, match="no folder or file"):
        sync.scan(tmp_path / "absent")
    with pytest.raises(SyncError, match=r"could not be listed|cannot be read"):
        sync.far_scan(HOST, agent, str(tmp_path / "absent"))


def test_special_files_are_skipped_with_a_reason(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "s"))
    assert sync.scan(root).skipped == (("s", "neither file, folder nor link"),)


def test_unreadable_files_are_named() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        for name in ("closed", "folder/x"):
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_text("x")
        (Path(folder) / "closed").chmod(0)
        (Path(folder) / "folder").chmod(0)
        try:
            assert as_a_user(lambda: list(sync.scan(Path(folder)).unreadable)) == [
                ["folder", "Permission denied"],
                ["closed", "Permission denied"],
            ]
        finally:
            (Path(folder) / "folder").chmod(0o755)


def as_a_user(act: Callable[[], object]) -> object:
    """What `act` returns where the superuser's powers do not count."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            os.write(into, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(into)
    with open(out, "rb") as file:
        said = file.read()
    os.waitpid(child, 0)
    return json.loads(said)


def test_warnings_name_what_will_be_different_there(root: Path) -> None:
    (root / "PRIVATE").write_text("x")
    (root / "e\u0301").write_text("x")
    (root / "\u00e9").write_text("x")
    (root / "out").symlink_to("/data/store")
    warnings = " ".join(sync.scan(root).warnings)
    assert "PRIVATE, private" in warnings
    assert "out is a link" in warnings and "/data/store" in warnings
    assert len(sync.scan(root).warnings) == 3


def test_hashes_are_kept_and_never_stale(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    first = sync.scan(root, cache=cache)
    read: list[bytes] = []
    real = sync.scan.__globals__["tree"].content
    monkeypatch.setattr("orchestrator.runtime.tree.content", lambda path: (read.append(path), real(path))[1])
    assert sync.scan(root, cache=cache) == first
    assert read == []
    (root / "same").write_text("print(9)\n")  # within the clock's reach: must be read each time
    for _ in range(2):
        read.clear()
        assert sync.scan(root, cache=cache).manifest == sync.scan(root).manifest
        assert read.count(os.fsencode(root / "same")) == 2
    for damaged in (b"", b"{", b"[]", b'{"schema": 1}'):
        for file in cache.iterdir():
            file.write_bytes(damaged)
        assert sync.scan(root, cache=cache).manifest == sync.scan(root).manifest


def test_a_file_that_is_always_written_is_named(root: Path) -> None:
    """A writer that truncates and fills, as a log does that rotates."""
    (root / "busy").write_bytes(b"x" * (64 << 20))
    script = "import os, sys, time\nf = open(sys.argv[1], 'r+b', 0)\nprint('up', flush=True)\n"
    script += "while True:\n  os.pwrite(f.fileno(), os.urandom(8), 0)"
    writer = subprocess.Popen([sys.executable, "-c", script, str(root / "busy")], stdout=subprocess.PIPE)
    try:
        assert writer.stdout and writer.stdout.readline()
        with pytest.raises(SyncError, match=r"busy changed while being read"):
            sync.scan(root)
    finally:
        writer.kill()
        writer.communicate()


# ---------------------------------------------------------------- there and back

_NAMES = st.one_of(
    st.sampled_from(
        ["a", "b c", "é", "e\u0301", "日本", "\udcff", "-x", "a'b", 'a"b', "a\nb", "$HOME", ".hidden", "*"]
    ),
    st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=8).filter(
        lambda s: s not in (".", "..")
    ),
)
_FILES = st.tuples(st.binary(max_size=300), st.sampled_from([0o644, 0o755, 0o600, 0o444]))
_LINKS = st.builds(lambda target: target, _NAMES)
_TREES = st.recursive(
    st.one_of(_FILES, _LINKS), lambda inner: st.dictionaries(_NAMES, inner, max_size=4), max_leaves=12
)


def build(place: bytes, what: object) -> None:
    try:
        if isinstance(what, dict):
            os.mkdir(place)
            for name, inner in what.items():
                build(place + b"/" + name.encode("utf-8", "surrogateescape"), inner)
        elif isinstance(what, str):
            os.symlink(what.encode("utf-8", "surrogateescape"), place)
        elif isinstance(what, tuple):
            fd = os.open(place, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
            os.write(fd, what[0])
            os.fchmod(fd, what[1])
            os.close(fd)
    except (FileExistsError, UnicodeEncodeError):
        pass


_SKIPPED = {".git", ".orch", "__pycache__", "pyvenv.cfg", ".gitignore", ".orchignore"}


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    trees=st.lists(
        st.dictionaries(_NAMES.filter(lambda n: n not in _SKIPPED), _TREES, max_size=5),
        min_size=1,
        max_size=3,
    )
)
def test_any_tree_after_any_other(
    tmp_path_factory: pytest.TempPathFactory, trees: list[dict[str, object]]
) -> None:
    top = tmp_path_factory.mktemp("round")
    agent = agent_at(top / "far")
    for number, tree in enumerate(trees):
        root = top / f"tree-{number}"
        build(os.fsencode(root), tree)
        push(agent, root)
        assert picture(there(agent)) == picture(root)
        entries = [e for e in sync.far_scan(HOST, agent, str(there(agent))).entries if e.kind != "link"]
        try:
            sync.pull(HOST, agent, str(there(agent)), entries, top / f"back-{number}")
        except SyncError as error:
            assert "only in case" in error.message
        else:
            only_files = {path: what for path, what in picture(root).items() if not isinstance(what, bytes)}
            assert picture(top / f"back-{number}") == only_files


# ---------------------------------------------------------------- pull


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
        [FILE, Entry("F", "file", 1, 0o644, HASH)],
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
    with pytest.raises(SyncError, match="is a folder here"):
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
    assert pulled.fetched_files == 1
    assert picture(target) == picture(root)


class Cut(HereHost):
    """Contact is lost after so many bytes were read."""

    def __init__(self, after: int) -> None:
        self.after = after

    def open(self, argv: object) -> Channel:  # type: ignore[override]
        channel = super().open(argv)  # type: ignore[arg-type]
        real = channel.read

        def read(limit: int) -> bytes:
            data = real(min(limit, 4096))
            self.after -= len(data)
            if self.after < 0:
                raise HostError("Contact was lost.")
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


KILL_PULL = """
import os, sys
sys.path.insert(0, sys.argv[5])
from pathlib import Path
from orchestrator import sync
from orchestrator.hosts import HereHost
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
    repo = str(Path(__file__).parents[2])
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
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result([1, 1, 1, 1, 1, *list(real)[5:]]))
    with pytest.raises(SyncError, match="1 are free"):
        sync.pull(HOST, agent, str(root), entries, tmp_path / "target")


@pytest.fixture(autouse=True)
def no_descriptor_is_left_open() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    after = set(os.listdir("/proc/self/fd"))
    assert len(after) <= len(before) + 2
