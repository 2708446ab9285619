"""A run that its machine does not start is not left as one that runs; a full disk is told as that."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from orchestrator import jobs
from orchestrator.api.listing import history
from orchestrator.errors import DiskFull, HostError, UsageError
from orchestrator.ledger.events import RunStarted
from orchestrator.model import Agent, Completed
from orchestrator.runtime import __main__ as runtime
from orchestrator.runtime import space
from orchestrator.runtime.agent import ending
from orchestrator.runtime.sampler import room
from orchestrator.session.project import Project
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

AGENT = Agent("python", "/r", "/b")


class Said:
    """A machine whose every command ends with one status and one text on standard error."""

    name = "m-1"

    def __init__(self, status: int, text: bytes) -> None:
        self._status, self._text = status, text

    def run(self, argv: tuple[str, ...], **_: Any) -> Completed:
        return Completed(tuple(argv), self._status, b"", self._text)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


@pytest.mark.processes
def test_a_run_that_is_refused_is_over_and_its_machine_can_be_ended(cloud: HereCloud, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    (tmp_path / "file").touch()
    more = f"data: [{{source: d, target: {tmp_path}/file/d}}]\n"
    profile = here_cloud.project(folder, "print(1)", more=more)
    (folder / "d").mkdir()
    (folder / "d/x").write_text("1")
    orch.up(profile, folder=folder)
    with pytest.raises(UsageError, match="cannot be created") as refused:
        orch.train(run_id="r1", folder=folder)
    assert "is still running, at $0.05/h" in (refused.value.exists or "")
    (lease,) = orch.status(folder=folder)
    assert lease.runs == []
    (past,) = history(folder=folder).runs
    assert (past.run_id, past.reason) == ("r1", "not_started")
    (tmp_path / "file").unlink()
    assert orch.train(run_id="r1", folder=folder).succeeded, "the id is free for another attempt"
    orch.down(folder=folder)
    assert not cloud.alive()


@pytest.mark.processes
@pytest.mark.parametrize("late", [False, True])
def test_an_announced_run_of_which_the_machine_has_nothing_keeps_it_for_a_minute(
    cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """The call that announced it was killed, or is about to start it."""
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, "print(1)")
    held = orch.up(profile, folder=folder)
    orch.train(run_id="r1", folder=folder)
    ledger = Project.at(folder).ledger(held.lease)
    ledger.record(RunStarted("r2", ledger.lease().runs["r1"].draft))
    if not late:
        with pytest.raises(orch.Busy, match="r2 is running on the machine"):
            orch.down(folder=folder)
        orch.down(folder=folder, discard=True)
        return
    monkeypatch.setattr("orchestrator.leases.down._BEGINS_WITHIN", -1.0)
    orch.down(folder=folder)
    assert not cloud.alive()


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (space.STATUS, b"[Errno 28] No space left on device: '/b/x'\n"),
        (3, b'{"kind": "full", "error": "The machine could not do it: No space left on device.", "by": ""}'),
    ],
)
def test_a_full_disk_is_told_by_the_status_or_the_kind_of_a_refusal(status: int, text: bytes) -> None:
    with pytest.raises(DiskFull, match=r"disk is full: .*No space left") as full:
        jobs.state(Said(status, text), AGENT, "r1")  # type: ignore[arg-type]
    assert full.value.exit_code == 18
    with pytest.raises(HostError, match="ended with status 1: Traceback"):
        jobs.state(Said(1, b"Traceback"), AGENT, "r1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "status"), [(errno.ENOSPC, space.STATUS), (errno.EDQUOT, space.STATUS), (errno.EIO, None)]
)
def test_a_verb_that_finds_no_space_says_so_without_a_traceback(
    number: int, status: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: list[str]) -> int:
        raise OSError(number, "refused", "/b/x")

    monkeypatch.setattr(room, "main", refuse)
    if status is None:
        with pytest.raises(OSError, match="refused"):
            runtime.main(["room"])
        return
    assert runtime.main(["room"]) == status
    assert "refused: '/b/x'" in capsys.readouterr().err


def test_a_folder_is_full_if_nothing_can_be_written_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ending.full_file_system(str(tmp_path), str(tmp_path / "absent")) is None
    opened: Callable[..., Any] = open
    monkeypatch.setattr(ending.tempfile, "TemporaryFile", lambda **_: opened("/dev/full", "wb"))
    assert ending.full_file_system(str(tmp_path)) == str(tmp_path)
