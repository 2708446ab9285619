"""Files for TensorBoard come home while a run trains, into their own folder and nowhere else."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import LocalError, MalformedAnswer
from orchestrator.model import Agent, Completed
from orchestrator.runs import events

FILE = "logs/events.out.tfevents.1"
AGENT = Agent("python", "/runtime", "/base")


class Machine:
    """Answers the verb `events` with what it is told to."""

    name = "machine-1"

    def __init__(self, *pieces: tuple[str, int, bytes], more: bool = False) -> None:
        self.files = [
            {"path": path, "at": at, "content": base64.b64encode(content).decode()}
            for path, at, content in pieces
        ]
        self.more = more
        self.asked: list[dict[str, int]] = []

    def run(self, _argv: Any, *, stdin: bytes, **_: Any) -> Completed:
        self.asked.append(json.loads(stdin)["have"])
        return Completed(("agent",), 0, json.dumps({"files": self.files, "more": self.more}).encode(), b"")


def bring(machine: Machine, run: Path) -> int:
    return events.bring(machine, AGENT, "one", run)  # type: ignore[arg-type]


def test_pieces_are_put_together_and_the_machine_is_told_what_is_here(tmp_path: Path) -> None:
    assert bring(Machine((FILE, 0, b"first")), tmp_path) == 5
    later = Machine((FILE, 5, b"more"))
    assert bring(later, tmp_path) == 4
    assert later.asked == [{FILE: 5}]
    assert (tmp_path / "events" / FILE).read_bytes() == b"firstmore"
    bring(Machine((FILE, 0, b"anew")), tmp_path)
    assert (tmp_path / "events" / FILE).read_bytes() == b"anew"
    assert events.size_in(tmp_path) == (1, 4)


def test_a_piece_after_a_gap_is_left_for_the_next_look(tmp_path: Path) -> None:
    bring(Machine((FILE, 0, b"first")), tmp_path)
    bring(Machine((FILE, 9, b"later")), tmp_path)
    assert (tmp_path / "events" / FILE).read_bytes() == b"first"


@pytest.mark.parametrize(
    "path",
    ["../a.tfevents", "/etc/a.tfevents", "a/../../b.tfevents", "a//b.tfevents", "./a.tfevents", "a.txt",
     "tfevents/a.txt", "a\nb.tfevents", "\udc80.tfevents", ""],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(MalformedAnswer):
        bring(Machine((path, 0, b"evil")), tmp_path / "run")
    assert not list(tmp_path.rglob("*.*")), "nothing was written"


def test_links_here_are_not_followed(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "events.out.tfevents.1").write_bytes(b"mine")
    (run / "events").mkdir(parents=True)
    (run / "events/logs").symlink_to(elsewhere)
    with pytest.raises(LocalError):
        bring(Machine((FILE, 0, b"evil")), run)
    (run / "events/logs").unlink()
    (run / "events/logs").mkdir()
    (run / "events" / FILE).symlink_to(elsewhere / "events.out.tfevents.1")
    with pytest.raises(LocalError):
        bring(Machine((FILE, 0, b"evil")), run)
    assert (elsewhere / "events.out.tfevents.1").read_bytes() == b"mine"


def test_a_machine_that_always_has_more_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(Machine(more=True), tmp_path)
    monkeypatch.setattr(events, "MOST", 3)
    endless = Machine((FILE, 0, b"four"), more=True)
    bring(endless, tmp_path)
    assert len(endless.asked) == 1


def test_what_is_no_base64_is_refused(tmp_path: Path) -> None:
    machine = Machine((FILE, 0, b"x"))
    machine.files[0]["content"] = "***"
    with pytest.raises(MalformedAnswer, match="base64"):
        bring(machine, tmp_path)


def test_what_came_home_among_the_outputs_is_kept_once(tmp_path: Path) -> None:
    bring(Machine((FILE, 0, b"first"), ("other/a.tfevents", 0, b"only here")), tmp_path)
    outputs = tmp_path / "outputs"
    (outputs / FILE).parent.mkdir(parents=True)
    (outputs / FILE).write_bytes(b"fir")
    events.forget(tmp_path, outputs)
    assert (tmp_path / "events" / FILE).exists(), "it has more than came home"
    (outputs / FILE).write_bytes(b"first and last")
    events.forget(tmp_path, outputs)
    assert not (tmp_path / "events/logs").exists()
    assert (tmp_path / "events/other/a.tfevents").read_bytes() == b"only here"
