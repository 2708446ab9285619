"""A ledger that is damaged, of a later version, or not writable: the machine can be ended all the same."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import CleanupUnproven, UsageError
from orchestrator.leases.down import down
from orchestrator.leases.status import status
from orchestrator.ledger import Ledger
from orchestrator.ledger.journal import Journal
from orchestrator.providers.memory import MemoryProvider
from orchestrator.report.lease import down_text
from orchestrator.session import machines
from orchestrator.session.project import Project
from tests.conftest import ROOT
from tests.unit.memory_cloud import leased, serve, spec_for

EVERY_NAME = ("memory", "local", "aws", "gcp")

GARBAGE = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"\0" * 4096,
            b"\n<<<<<<< HEAD\n",
            b"\n=======\n",
            b"\n>>>>>>> theirs\n",
            b'\n{"v": 1, "seq": 3, "time": 1e999, "event": "lease.closed"}\n',
            b'\n{"v": 2, "seq": 3, "time": 5, "event": "lease.sealed"}\n',
            b'\n{"v": 1, "seq": 0, "time": 5, "event": "create.accepted", "machine": "vm"}\n',
            b"\n[]\nnull\n7\n",
            b"[" * 100_000,
        ]
    ),
)


@st.composite
def wounds(draw: st.DrawFn) -> list[tuple[str, float, float, bytes]]:
    kinds = st.sampled_from(["insert", "cut", "flip", "double", "truncate"])
    place = st.floats(0, 1)
    return draw(st.lists(st.tuples(kinds, place, place, GARBAGE), min_size=1, max_size=4))


def damaged(text: bytes, done: list[tuple[str, float, float, bytes]]) -> bytes:
    for kind, one, two, garbage in done:
        start, stop = sorted((int(one * len(text)), int(two * len(text))))
        match kind:
            case "insert":
                text = text[:start] + garbage + text[start:]
            case "cut":
                text = text[:start] + text[min(stop, start + 400) :]
            case "flip" if text:
                at = min(start, len(text) - 1)
                text = text[:at] + bytes([text[at] ^ 0x11]) + text[at + 1 :]
            case "double":
                text = text[:stop] + text[start:]
            case "truncate":
                text = text[: max(start, 1)]
    return text


@settings(max_examples=60)
@given(wounds())
def test_a_ledger_damaged_at_random_still_ends_its_machine(
    done: list[tuple[str, float, float, bytes]],
) -> None:
    """Its cloud may be forgotten, too: then every cloud is asked. What is there is never rewritten.

    Here the machine tells nobody which runs it has, so where lines were lost somebody has to say --discard.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(machines, "_POLL_SECONDS", 0.0)
        cloud = MemoryProvider()
        serve(cloud, patched, *EVERY_NAME)
        project = Project(Path(folder))
        leased(project, "job-ab12cd", cloud, spec_for("job-ab12cd"))
        path = project.ledger("job-ab12cd").path
        text = damaged(path.read_bytes(), done)
        path.write_bytes(text)
        if not project.ledger("job-ab12cd").lease().whole and project.open_leases():
            with pytest.raises(CleanupUnproven, match="does not report its runs"):
                down(folder=project.root)
            assert cloud.alive()
        down(folder=project.root, discard=True)
        assert not cloud.alive()
        assert path.read_bytes().startswith(text)
        for lease in status(folder=project.root, ask=True):
            assert lease.state in ("gone", "unknown")


def test_what_is_read_after_damage_is_what_was_written_or_nothing(tmp_path: Path) -> None:
    """Any one byte changed: the line is skipped, never believed."""
    ledger = Ledger(tmp_path / "a-1" / "ledger.jsonl")
    ledger.append("noted", by="somebody", count=7)
    text = ledger.path.read_bytes()
    whole = ledger.events()
    name = text.index(b'"crc"')  # without its name the checksum is a field as any other
    for at in {*range(len(text))} - {*range(name, name + 5)}:
        ledger.path.write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
        assert ledger.events() in ([], whole)


def test_zeros_after_a_power_loss_hide_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append("noted", count=0)
    with ledger.path.open("ab") as file:
        file.write(b"\0" * 512)
    ledger.append("noted", count=1)
    assert [event.data["count"] for event in ledger.events()] == [0, 1]
    assert b"\0" * 512 in ledger.path.read_bytes()


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> MemoryProvider:
    monkeypatch.setattr(machines, "_POLL_SECONDS", 0.0)
    made = MemoryProvider()
    serve(made, monkeypatch)
    return made


def test_a_later_version_is_refused_by_number_and_its_machine_can_be_ended(
    tmp_path: Path, cloud: MemoryProvider
) -> None:
    project = Project(tmp_path)
    leased(project, "job-1", cloud, spec_for("job-1"))
    ledger = project.ledger("job-1")
    text = ledger.path.read_bytes() + b'{"v": 7, "seq": 9, "time": 5, "event": "lease.braided"}\n'
    ledger.path.write_bytes(text)
    with pytest.raises(UsageError, match="version 7"):
        ledger.append("noted")
    with pytest.raises(CleanupUnproven, match="does not report its runs"):
        down(folder=tmp_path)
    report = down(folder=tmp_path, discard=True)
    assert not cloud.alive()
    assert ledger.path.read_bytes() == text
    assert any("version 7" in said for said in report.unnoted)
    assert "orch down" in down_text(report)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_what_cannot_be_noted_is_said_and_noted_by_the_next_command(
    tmp_path: Path, cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    project = Project(tmp_path)
    made = leased(project, "job-1", cloud, spec_for("job-1"))

    def refuse(self: Journal, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(self.path))

    with monkeypatch.context() as refusing:
        refusing.setattr(Journal, "append", refuse)
        report = down(folder=tmp_path)
    assert report.machines == (made.id,)
    assert not cloud.alive()
    assert os.strerror(number) in down_text(report)
    assert project.open_leases()
    again = down(folder=tmp_path)
    assert (again.machines, again.unnoted) == ((), ())
    assert not project.open_leases()


def test_a_write_that_a_full_disk_cuts_is_an_error_and_spoils_no_other_line(tmp_path: Path) -> None:
    """A real limit on the size of files: a part of the line is written first."""
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append("noted", count=0)
    size = path.stat().st_size
    script = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from orchestrator.ledger import Ledger\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 20}, resource.RLIM_INFINITY))\n"
        f"Ledger(Path({str(path)!r})).append('noted', count=1)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert "OSError" in done.stderr
    assert path.stat().st_size == size + 20
    Ledger(path).append("noted", count=2)
    assert [event.data["count"] for event in Ledger(path).events()] == [0, 2]


def test_a_ledger_that_cannot_be_read_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in its place: as unreadable as a file of somebody else's."""
    monkeypatch.setattr(machines, "_POLL_SECONDS", 0.0)
    cloud = MemoryProvider()
    serve(cloud, monkeypatch, *EVERY_NAME)
    project = Project(tmp_path)
    leased(project, "job-1", cloud, spec_for("job-1"))
    path = project.ledger("job-1").path
    path.unlink()
    path.mkdir()
    with pytest.raises(CleanupUnproven, match="does not report its runs"):
        down(folder=tmp_path)
    report = down(folder=tmp_path, discard=True)
    assert not cloud.alive()
    assert report.unnoted


def test_the_crc_is_of_what_was_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append("noted", numbers={10: "a", 9: (1, 2.5)}, text="ü\n")
    (event,) = ledger.events()
    assert event.data == {"numbers": {"10": "a", "9": [1, 2.5]}, "text": "ü\n"}
    assert json.loads(ledger.path.read_text())["v"] == 1
    assert abs(event.time - time.time()) < 60
