"""The same transfers through a real sshd: large, interrupted, and from a machine that is not ours."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import sync
from orchestrator.errors import HostError, SyncError
from orchestrator.hosts import connect
from orchestrator.model import Host
from tests.conformance import private_sshd
from tests.conformance.private_sshd import over_ssh
from tests.unit.far_side import agent_at
from tests.unit.job_runs import until
from tests.unit.sync.trees import age, picture


@pytest.fixture
def host(server: private_sshd.Sshd, tmp_path: Path) -> Iterator[Host]:
    made = over_ssh(server, tmp_path)
    yield made
    made.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "project"
    (top / "many").mkdir(parents=True)
    for number in range(300):
        (top / "many" / f"ü {number}").write_bytes(os.urandom(number * 50))
    (top / "large").write_bytes(os.urandom(12 << 20))
    (top / "empty").mkdir()
    age(top)
    return top


class Notes:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def say(self, text: str) -> None:
        raise AssertionError(text)

    def transfer(self, label: str, done: int, total: int) -> None:
        self.seen.append((label, done, total))


def test_there_and_back(host: Host, root: Path, tmp_path: Path) -> None:
    agent, notes = agent_at(tmp_path / "far"), Notes()
    pushed = sync.push(host, agent, sync.scan(root), "code", notes)
    assert pushed.sent_files == 301
    assert notes.seen[-1] == ("code", pushed.sent_bytes, pushed.sent_bytes)
    assert all(done < total for _, done, total in notes.seen[:-1])
    assert sync.push(host, agent, sync.scan(root), "code").sent_files == 0
    there = sync.tree_path(agent, "code")
    manifest = sync.far_scan(host, agent, there)
    assert manifest == pushed.manifest
    sync.pull(host, agent, there, manifest.entries, tmp_path / "back", notes)
    assert picture(tmp_path / "back") == picture(root) == picture(Path(there))


def test_a_push_that_is_cut_off_goes_on_where_it_was(
    server: private_sshd.Sshd, root: Path, tmp_path: Path
) -> None:
    agent, known = agent_at(tmp_path / "far"), tmp_path / "known_hosts"
    first = connect(server.endpoint, identity=server.identity, known_hosts=known, machine_id="vm-1")

    class Cut(Notes):
        def transfer(self, label: str, done: int, total: int) -> None:
            super().transfer(label, done, total)
            if len(self.seen) == 250:
                until(lambda: any((tmp_path / "far").rglob(large)))
                first.close()

    (root / "zz last").write_bytes(os.urandom(1 << 20))
    scan = sync.scan(root)
    large = next(entry.digest for entry in scan.manifest.entries if entry.path == "large")
    with pytest.raises((HostError, SyncError)):
        sync.push(first, agent, scan, "code", Cut())
    assert not (Path(sync.tree_path(agent, "code")) / "large").exists()
    again = connect(server.endpoint, identity=server.identity, known_hosts=known, machine_id="vm-1")
    pushed = sync.push(again, agent, sync.scan(root), "code")
    again.close()
    assert pushed.sent_bytes < 12 << 20  # the large file, which came first, is not sent again
    assert picture(Path(sync.tree_path(agent, "code"))) == picture(root)


def test_several_trees_at_once(host: Host, root: Path, tmp_path: Path) -> None:
    agent, scan = agent_at(tmp_path / "far"), sync.scan(root)
    threads = [threading.Thread(target=sync.push, args=(host, agent, scan, f"t{n}")) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        assert picture(Path(sync.tree_path(agent, f"t{number}"))) == picture(root)
