"""Output that was shown is counted and kept, whatever interrupts it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator import jobs
from orchestrator.model import RunState, Silent
from orchestrator.profile.resolved import Mlflow
from orchestrator.runs import follow
from orchestrator.session.project import Project


class Shown:
    """A terminal on which Ctrl-C is pressed `presses` times right after the first piece was shown."""

    def __init__(self, presses: int) -> None:
        self.presses = presses
        self.text = b""
        self.went_on = False

    def __call__(self, data: bytes) -> None:
        self.text += data
        for _ in range(self.presses):
            os.kill(os.getpid(), signal.SIGINT)
        self.presses = 0
        self.went_on = True


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session whose run prints two pieces and ends."""

    def tail(_host: Any, _agent: Any, _run: str, offset: int, write: Any) -> int:
        for piece in (b"one\n", b"two\n"):
            if piece[max(0, offset) :]:
                write(piece[max(0, offset) :])
            offset -= len(piece)
        return 8

    monkeypatch.setattr(jobs, "follow", tail)
    monkeypatch.setattr(jobs, "state", lambda *_: RunState("ended"))
    ledger = SimpleNamespace(path=tmp_path / "ledger.jsonl")
    profile = SimpleNamespace(train=SimpleNamespace(checkpoints=()), mlflow=Mlflow())
    return cast(
        "Any",
        SimpleNamespace(
            ledger=ledger,
            host=None,
            agent=None,
            project=Project(tmp_path),
            profile=profile,
            progress=Silent(),
        ),
    )


def kept(session: Any) -> bytes:
    data: bytes = (session.project.run("run") / "output.log").read_bytes()
    return data


def test_what_was_shown_when_the_interrupt_came_is_not_shown_again(session: Any) -> None:
    shown = Shown(presses=1)
    with pytest.raises(KeyboardInterrupt):
        follow.follow_to_end(session, "run", shown)
    assert shown.went_on
    follow.follow_to_end(session, "run", shown)
    assert shown.text == b"one\ntwo\n"


def test_a_second_interrupt_does_not_wait(session: Any) -> None:
    shown = Shown(presses=2)
    with pytest.raises(KeyboardInterrupt):
        follow.follow_to_end(session, "run", shown)
    assert not shown.went_on
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_was_shown_is_kept_although_the_machine_goes(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(_host: Any, _agent: Any, _run: str, offset: int, write: Any) -> int:
        write(b"one\n")
        raise jobs.FollowInterrupted("gone", offset + 4)

    monkeypatch.setattr(jobs, "follow", cut)
    monkeypatch.setattr(follow, "reconnecting", _lost)
    assert follow.follow_to_end(session, "run", Shown(0)) is None
    assert kept(session) == b"one\n"


def _lost(_session: Any, act: Any, *, advanced: Any) -> None:
    with pytest.raises(jobs.FollowInterrupted):
        act()
    assert advanced() == 4


@pytest.mark.parametrize("left", [b"", b"on", b"one\ntwo\n"])
def test_what_is_missing_here_is_kept_and_not_shown_twice(session: Any, left: bytes) -> None:
    """A follower of another process, or the user, may have left less or more than this one was shown."""
    follow.follow_to_end(session, "run", Shown(0))
    (session.project.run("run") / "output.log").write_bytes(left)
    shown = Shown(0)
    follow.follow_to_end(session, "run", shown)
    assert (shown.text, kept(session)) == (b"", b"one\ntwo\n")


def test_nobody_looks_and_it_is_kept_all_the_same(session: Any) -> None:
    follow.follow_to_end(session, "run", None)
    assert kept(session) == b"one\ntwo\n"


def test_a_disk_that_takes_no_more_does_not_stop_the_following(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    shown = Shown(0)
    follow.follow_to_end(session, "run", shown)
    assert shown.text == b"one\ntwo\n"


def test_an_endless_output_does_not_fill_the_disk(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "KEPT_MOST", 6)
    shown = Shown(0)
    follow.follow_to_end(session, "run", shown)
    assert shown.text == b"one\ntwo\n" and kept(session) == b"one\ntw"
