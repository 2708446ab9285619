"""What a transfer costs, counted: waits for the other side, bytes, system calls."""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator import sync
from orchestrator.hosts.here import HereChannel, HereHost
from orchestrator.model import Agent
from tests.unit.far_side import agent_at
from tests.unit.sync.trees import HOST, age, picture, push, there

FILES = 200
CALLS = ("open", "rename", "mkdir", "stat")
COUNT = f"""
import atexit, json
counts = dict.fromkeys({CALLS!r}, 0)
def counted(name):
    real = getattr(os, name)
    def call(*a, **k):
        counts[name] += 1
        return real(*a, **k)
    setattr(os, name, call)
for name in counts: counted(name)
atexit.register(lambda: open(os.environ["COUNTS"], "w").write(json.dumps(counts)))
"""


@pytest.fixture
def many(tmp_path: Path) -> Path:
    top = tmp_path / "many"
    for number in range(FILES):
        place = top / f"d{number % 10}" / f"file-{number}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"content {number}")
    age(top)
    return top


class Watched(HereHost):
    """Counts the bytes that are sent, and the times that a read follows a write. `peek` waits for the first
    message of the other side, which is read again later."""

    def __init__(self) -> None:
        self.sent, self.waits = 0, 0
        self.peek: Callable[[], None]

    def open(self, argv: Sequence[str]) -> HereChannel:
        channel = super().open(argv)
        write, read = channel.write, channel.read
        ahead: list[bytes] = []
        wrote = [False]

        def written(data: bytes) -> None:
            self.sent += len(data)
            wrote[0] = True
            write(data)

        def heard(limit: int) -> bytes:
            self.waits += wrote[0]
            wrote[0] = False
            return ahead.pop() if ahead else read(limit)

        def peek() -> None:
            channel.patience(30)
            ahead.append(read(1 << 16))

        self.peek = peek
        channel.write, channel.read = written, heard  # type: ignore[method-assign]
        return channel


def test_a_push_waits_for_the_other_side_at_most_three_times(agent: Agent, many: Path) -> None:
    waits = []
    for change in ("all", "nothing", "one file"):
        if change == "one file":
            (many / "d3" / "file-3").write_text("changed")
        host = Watched()
        sync.push(host, agent, sync.scan(many), "code")
        waits.append(host.waits)
    assert all(found <= most for found, most in zip(waits, (3, 2, 3), strict=True))
    assert picture(there(agent)) == picture(many)


def test_a_change_is_sent_without_the_rows_that_are_there(agent: Agent, many: Path) -> None:
    everything, change = Watched(), Watched()
    sync.push(everything, agent, sync.scan(many), "code")
    (many / "d3" / "file-3").write_text("changed")
    (many / "d4" / "file-4").unlink()
    (many / "d5" / "file-5").chmod(0o755)
    sync.push(change, agent, sync.scan(many), "code")
    assert everything.sent > FILES * 100
    assert change.sent < 1000
    assert picture(there(agent)) == picture(many)


def test_the_other_side_looks_while_the_client_scans_and_locks_nothing(agent: Agent, many: Path) -> None:
    push(agent, many)
    host = Watched()

    def look() -> sync.Scan:
        host.peek()  # its fingerprints have come, and no digest was sent
        fd = os.open(there(agent), os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
        return sync.scan(many)

    sync.push_latest(host, agent, look, "code")


def test_a_tree_that_another_sync_changes_meanwhile_is_looked_at_again(
    agent: Agent, many: Path, root: Path
) -> None:
    push(agent, many)
    host = Watched()

    def look() -> sync.Scan:
        host.peek()
        push(agent, root)
        return sync.scan(many)

    sync.push_latest(host, agent, look, "code")
    assert picture(there(agent)) == picture(many)


LATER = "import time; real, late = time.monotonic, iter(range(0, 10**9, 10)); "
LATER += "time.monotonic = lambda: real() + next(late)"


def test_a_tree_that_was_looked_at_long_ago_is_looked_at_again(tmp_path: Path, many: Path) -> None:
    agent = agent_at(tmp_path / "far", before=LATER)
    push(agent, many)
    host = Watched()

    def look() -> sync.Scan:
        host.peek()
        (there(agent) / "d3" / "file-3").write_text("by a stray program")
        return sync.scan(many)

    sync.push_latest(host, agent, look, "code")
    assert picture(there(agent)) == picture(many)


def test_a_file_costs_one_open_and_one_rename_there(
    tmp_path: Path, many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTS", str(tmp_path / "counts"))
    push(agent_at(tmp_path / "far", before=COUNT), many)
    counts = json.loads((tmp_path / "counts").read_text())
    assert FILES <= counts["open"] < 1.3 * FILES
    assert counts["rename"] == FILES
    assert counts["stat"] < 2.2 * FILES
    assert counts["mkdir"] < 20


def test_a_file_that_is_pulled_costs_one_open_and_one_rename(
    agent: Agent, many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = sync.far_scan(HOST, agent, str(many)).entries
    counts: Counter[str] = Counter()

    def counted(name: str) -> None:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return real(*args, **options)

        monkeypatch.setattr(os, name, call)

    for name in CALLS:
        counted(name)
    sync.pull(HOST, agent, str(many), entries, tmp_path / "back")
    assert FILES <= counts["open"] < 1.5 * FILES
    assert counts["rename"] == FILES
    assert counts["mkdir"] < 30
    assert picture(tmp_path / "back") == picture(many)
