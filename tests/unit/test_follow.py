"""An interrupt never parts what was shown from what was counted."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator import jobs
from orchestrator.api import follow
from orchestrator.model import RunState


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
        for piece in (b"one\n", b"two\n")[offset // 4 :]:
            write(piece)
        return 8

    monkeypatch.setattr(jobs, "follow", tail)
    monkeypatch.setattr(jobs, "state", lambda *_: RunState("ended"))
    ledger = SimpleNamespace(path=tmp_path / "ledger.jsonl")
    return cast("Any", SimpleNamespace(ledger=ledger, host=None, agent=None))


def test_what_was_shown_when_the_interrupt_came_is_not_shown_again(session: Any) -> None:
    shown = Shown(presses=1)
    with pytest.raises(KeyboardInterrupt):
        follow.to_the_end(session, "run", shown)
    assert shown.went_on
    follow.to_the_end(session, "run", shown)
    assert shown.text == b"one\ntwo\n"


def test_a_second_interrupt_does_not_wait(session: Any) -> None:
    shown = Shown(presses=2)
    with pytest.raises(KeyboardInterrupt):
        follow.to_the_end(session, "run", shown)
    assert not shown.went_on
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
