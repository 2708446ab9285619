"""What a tree is: the same on both sides, with what will be different there named."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator import sync
from orchestrator.errors import SyncError
from orchestrator.model import Agent
from orchestrator.runtime.transfer import tree
from tests.unit.sync.trees import HOST


def test_a_scan_is_the_same_on_both_sides(agent: Agent, root: Path) -> None:
    assert sync.far_scan(HOST, agent, str(root)) == sync.scan(root).manifest


def test_a_scan_without_a_root(agent: Agent, tmp_path: Path) -> None:
    with pytest.raises(SyncError, match="does not exist"):
        sync.scan(tmp_path / "absent")
    with pytest.raises(SyncError, match=r"could not be listed|cannot be read"):
        sync.far_scan(HOST, agent, str(tmp_path / "absent"))


@pytest.mark.timeout(60)
def test_a_file_of_holes_is_refused_before_it_is_read(root: Path, tmp_path: Path) -> None:
    """As a part of a folder and by itself; where it is ignored, nothing is said of it."""
    hollow = root / "image.raw"
    with open(hollow, "wb") as file:
        file.write(b"1" * 4096)
        file.truncate(10 << 40)
    for place in (root, hollow):
        with pytest.raises(SyncError, match=r"image.raw has 10,995,116,277,760 bytes, .* sparse"):
            sync.scan(place, cache=tmp_path / "cache", data=True)
    assert all(row.path != "image.raw" for row in sync.scan(root, ignore=["image.raw"]).manifest.entries)


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
    cache, real_time = tmp_path / "cache", time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_time() + tree.RACY)
    first = sync.scan(root, cache=cache)
    monkeypatch.setattr(time, "time_ns", real_time)
    read: list[bytes] = []
    real = tree.content_of

    def noted(file: int) -> tuple[str, tree.Stamp]:
        read.append(os.fsencode(Path(f"/proc/self/fd/{file}").readlink()))
        return real(file)

    monkeypatch.setattr("orchestrator.runtime.transfer.tree.content_of", noted)
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


def test_a_log_that_somebody_appends_to_is_listed(root: Path) -> None:
    (root / "busy").write_bytes(b"x" * (64 << 20))
    script = "import sys\nf = open(sys.argv[1], 'ab', 0)\nprint('up', flush=True)\n"
    script += "while f.tell() < 1 << 28:\n  f.write(b'x' * 4096)"
    writer = subprocess.Popen([sys.executable, "-c", script, str(root / "busy")], stdout=subprocess.PIPE)
    try:
        assert writer.stdout and writer.stdout.readline()
        (busy,) = [entry for entry in sync.scan(root).manifest.entries if entry.path == "busy"]
        assert busy.size >= 64 << 20
    finally:
        writer.kill()
        writer.communicate()
    assert busy.digest == hashlib.sha256(b"x" * busy.size).hexdigest()


def test_a_change_whose_time_was_set_back_is_read_again(root: Path, tmp_path: Path) -> None:
    first = sync.scan(root, cache=tmp_path / "cache")
    about = (root / "same").stat()
    with open(root / "same", "r+b") as file:
        file.write(b"PRINT")
    os.utime(root / "same", ns=(about.st_atime_ns, about.st_mtime_ns))
    assert sync.scan(root, cache=tmp_path / "cache").manifest != first.manifest


def test_a_write_through_a_mapping_is_seen_however_soon_it_comes(root: Path, tmp_path: Path) -> None:
    """A page that is dirty already takes another write without a new change time."""
    cache, path = tmp_path / "cache", root / "same"
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0:1] = b"p"
        os.utime(path, (1_700_000_000,) * 2)
        late = time.time_ns() + 5 * 10**9
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: late)
            first = sync.scan(root, cache=cache)
        mapped[0:1] = b"P"
        assert sync.scan(root, cache=cache).manifest != first.manifest


def test_a_file_is_trusted_by_its_change_time_not_by_the_time_that_a_program_set() -> None:
    now, old = 10**18, 10**9
    written = (1, old, 1, now - 10**6, 1)
    assert tree.settled({"a": (written, "h")}, {}, now) == {}
    assert tree.settled({"a": (written, "h")}, {"a": (written, "h")}, now), "it was trusted before"
    assert tree.settled({"a": ((1, old, 1, now + 10**12, 1), "h")}, {}, now) == {}, "the clock was set back"
    kept = {"a": ((1, old, 1, old, 1), "h")}
    assert tree.settled(kept, {}, now) == kept


def test_a_file_that_is_always_written_is_named(root: Path) -> None:
    """A writer that truncates and fills, as a log does that rotates."""
    (root / "busy").write_bytes(b"x" * (64 << 20))
    script = "import os, sys, time\nf = open(sys.argv[1], 'r+b', 0)\nprint('up', flush=True)\n"
    script += "while True:\n  os.pwrite(f.fileno(), os.urandom(8), 0)"
    writer = subprocess.Popen([sys.executable, "-c", script, str(root / "busy")], stdout=subprocess.PIPE)
    try:
        assert writer.stdout and writer.stdout.readline()
        with pytest.raises(SyncError, match=r"busy kept changing while being read"):
            sync.scan(root)
    finally:
        writer.kill()
        writer.communicate()
