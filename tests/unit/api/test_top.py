"""`orch top`: machines and runs as they are now."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator import cli
from orchestrator.api import logs
from orchestrator.api.live_status import Now, Top, top
from orchestrator.cli.top import _fitting
from orchestrator.model import LeaseStatus
from orchestrator.model.progress import Pace
from orchestrator.report.top import top_text
from tests.unit import here_cloud
from tests.unit.cli.terminals import Terminal
from tests.unit.here_cloud import HereCloud

SCRIPT = """import os, sys, time
for epoch in range(1, 200):
    print(f"Epoch {epoch}/200", flush=True)
    time.sleep(0.5)
    print(f"loss: {1 / epoch:.4f}", flush=True)
    if os.path.exists("enough"):
        sys.exit(0)
"""


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    monkeypatch.chdir(tmp_path)
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


def looked(asked: Top, until: Callable[[Now], object]) -> Now:
    for _ in range(100):
        if until(now := asked.look()):
            return now
        time.sleep(0.2)
    raise AssertionError(now)


def text(now: Now) -> str:
    return top_text(now.leases, now.paces, now.problems, up="orch up", columns=100)


@pytest.mark.processes
def test_a_run_from_its_start_to_its_end(cloud: HereCloud, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    orch.up(here_cloud.project(folder, SCRIPT), folder=folder)
    orch.train(run_id="one", folder=folder, detach=True)
    with top(folder=folder) as asked:
        now = looked(asked, lambda now: "one" in now.paces and now.paces["one"].metrics)
        assert now.paces["one"].epochs == 200 and "loss" in now.paces["one"].metrics
        assert "epoch " in text(now) and "running" in text(now)
        json.dumps(now.as_json())
        (machine,) = cloud.alive()
        cloud.base(machine.id).joinpath("runs", "one", "work", "enough").touch()
        logs.logs("one", follow=True, folder=folder, output=lambda _data: None)
        asked._asked_at = None  # as after fifteen seconds
        now = asked.look()
        assert not now.paces and "completed; orch pull one" in text(now)
        cloud.kill(machine)
        asked._asked_at = None
        assert asked.look().leases[0].state == "gone"
    orch.down(folder=folder, discard=True)
    with top(folder=folder) as asked:
        assert text(asked.look()) == "This project has no leased machine.\nNext: orch up"


@pytest.mark.processes
def test_a_machine_that_goes_between_two_looks_is_a_problem_and_no_end(
    cloud: HereCloud, tmp_path: Path
) -> None:
    folder = tmp_path / "p"
    orch.up(here_cloud.project(folder, SCRIPT), folder=folder)
    orch.train(run_id="one", folder=folder, detach=True)
    with top(folder=folder) as asked:
        looked(asked, lambda now: now.paces)
        (machine,) = cloud.alive()
        cloud.kill(machine)
        now = asked.look()
        assert now.problems and not now.paces and now.problems[0] in text(now)
        asked._asked_at = None
        assert asked.look().leases[0].state == "gone"
    orch.down(folder=folder, discard=True)


@pytest.mark.processes
def test_a_terminal_shows_it_until_ctrl_c(
    cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "p"
    orch.up(here_cloud.project(folder, SCRIPT), folder=folder)
    orch.train(run_id="one", folder=folder, detach=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal(90, 12)
    shown: list[str] = []
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    monkeypatch.setattr(sys, "argv", ["orch", "top", "--every", "0.5"])

    def sleep(seconds: float) -> None:
        real(min(seconds, 0.2))
        shown.append("\n".join(terminal.screen.display))
        if any("loss" in each for each in shown) or len(shown) > 100:
            raise KeyboardInterrupt

    real = time.sleep
    monkeypatch.setattr("orchestrator.cli.top.time.sleep", sleep)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert not left.value.code
    assert "1 machine, $" in shown[-1] and "epoch" in shown[-1] and "running" in shown[-1]
    monkeypatch.undo()
    terminal.close()
    (machine,) = cloud.alive()
    cloud.kill(machine)


LEASE = LeaseStatus(
    lease="digits-1", name="digits", cloud="gcp", state="running", profile="orch.yaml", machine="m-1",
    instance_type="g2-standard-4", zone="us-central1-a", price=0.75, cost=0.12, created_at=0.0,
    deadline=None, detail={}, attempts=(), runs=(),
)  # fmt: skip


def test_the_screen() -> None:
    runs = [
        {"run_id": "one", "state": "running", "collected": False, "lost": ""},
        {"run_id": "two", "state": "failed", "collected": False, "lost": ""},
        {"run_id": "three", "state": "completed", "collected": True, "lost": ""},
    ]
    pace = Pace(seconds=60.0, steps_per_s=12.34, metrics={"accuracy": 0.9, "loss": 0.25}, price=0.75)
    lease = replace(LEASE, runs=runs, deadline=time.time() + 3600.4)
    shown = top_text([lease], {"one": pace}, ["m-2 hung up."], up="u", columns=100)
    assert shown.splitlines() == [
        "1 machine, $0.75/h",
        "",
        "lease     state    type           zone           $/h    so far  ends in",
        "digits-1  running  g2-standard-4  us-central1-a  $0.75  $0.12   1 h",
        "",
        "one",
        "  1:00 · loss 0.25 · accuracy 0.9 · 12.3 steps/s · $0.0125",
        "",
        "two",
        "  failed; orch pull two",
        "",
        "m-2 hung up.",
    ]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    runs = [{"run_id": "one", "state": "running", "collected": False, "lost": ""}]
    pace = Pace(
        10.0, 5, 10, 100.0, 3, 10, {"loss": 1.0, "val_loss": 2.0}, 12.0, 0.5, 1.0, 4.0, 0.5, 1 << 30, 1.0
    )
    shown = top_text([replace(LEASE, runs=runs)], {"one": pace}, [], up="u", columns=columns)
    assert max(map(len, shown.splitlines())) <= columns


def test_q_ends_it_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 60, 0, 0))
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "top", "--every", "60"],
        cwd=tmp_path,
        env={**os.environ, "ORCH_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    try:
        said = b""
        while b"no leased machine" not in said:
            said += os.read(ours, 1 << 16)
        os.write(ours, b"xq")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert termios.tcgetattr(theirs) == before
    said += os.read(ours, 1 << 16)
    assert said.endswith(b"\x1b[?25h\x1b[?1049l") and b"xq" not in said
    os.close(ours)
    os.close(theirs)


def test_a_low_screen_says_how_much_is_below() -> None:
    assert _fitting("a\n\nb c", 80, 3) == ["a", "", "b c"]
    assert _fitting("a\nb\nc\nd", 80, 3) == ["a", "b", "… 2 more lines"]
    assert _fitting("a\n  one two", 6, 3) == ["a", "  one", "  two"]
