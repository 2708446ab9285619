"""Whoever wants it is told how a run is doing while it goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator import cli
from orchestrator.model.progress import Pace
from orchestrator.runs.pace import Printed
from tests.said import Said
from tests.unit import here_cloud
from tests.unit.cli.terminals import Terminal

pytestmark = pytest.mark.processes

SCRIPT = """import sys, time
print("2026-11-27 10:44:24.125400: I tensorflow/core/x.cc:210] starts", flush=True)
for epoch in range(1, 4):
    print(f"Epoch {epoch}/3", flush=True)
    time.sleep(1.5)
    print(f"loss: {1 / epoch:.4f} - accuracy: 0.9", flush=True)
sys.exit(0)
"""


class Watched(Said):
    every_s = 0.3

    def __init__(self) -> None:
        super().__init__()
        self.paces: list[Pace | None] = []

    def pace(self, pace: Pace | None) -> None:
        self.paces.append(pace)


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    return here_cloud.project(tmp_path / "p", SCRIPT)


def test_the_pace_is_told_until_the_run_ends(profile: Path) -> None:
    watched = Watched()
    assert orch.run(profile, run_id="one", folder=profile.parent, progress=watched).succeeded
    assert watched.paces[-1] is None
    paces = [pace for pace in watched.paces if pace is not None]
    assert len(paces) == len(watched.paces) - 1 >= 3
    assert {pace.epoch for pace in paces} >= {1, 2, 3} and paces[-1].epochs == 3
    assert {pace.metrics.get("loss") for pace in paces} >= {1.0, 0.5}
    seconds = [pace.seconds for pace in paces if pace.seconds is not None]
    assert seconds == sorted(seconds) and seconds[-1] > 2
    assert paces[-1].price is not None and paces[-1].cores


def test_of_a_job_that_prints_much_the_last_lines_are_read() -> None:
    printed = Printed()
    printed.read(b"Epoch 1/9\n" + b"x\n" * 500)
    assert printed.epoch is None
    printed.read(b"x\n" * 500 + b"Epoch 2/9\nloss: 0.5\nloss: 0.")
    printed.read(b"25\n")
    assert (printed.epoch, printed.epochs, printed.metrics) == (2, 9, {"loss": 0.25})


def test_a_trace_that_is_none_harms_nothing(profile: Path) -> None:
    """The job put something else in its place."""
    trace = "import os; trace = os.path.abspath('../trace.jsonl')\n"
    script = f"{trace}import time\nos.remove(trace); os.mkfifo(trace); time.sleep(2); print('done')\n"
    (profile.parent / "train.py").write_text(script)
    watched, shown = Watched(), bytearray()
    done = orch.run(
        profile, run_id="one", folder=profile.parent, progress=watched, output=lambda data: shown.extend(data)
    )
    assert done.succeeded and b"done" in shown


def test_a_terminal_shows_the_run_and_its_pace(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(profile.parent)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    terminal = Terminal(100, 20)
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    monkeypatch.setattr(sys, "argv", ["orch", "run", str(profile), "--run-id", "one"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    terminal.close()
    assert not left.value.code
    assert any("epoch 2/3 · loss 1" in row and "cores" in row for row in terminal.seen)
    text = terminal.text()
    begun = text.index("Epoch 1/3")
    assert text[begun - 1] == "(1 start-up line of TensorFlow: see the log)"
    assert text[begun : begun + 6] == [
        "Epoch 1/3", "loss: 1.0000 - accuracy: 0.9", "Epoch 2/3", "loss: 0.5000 - accuracy: 0.9",
        "Epoch 3/3", "loss: 0.3333 - accuracy: 0.9",
    ]  # fmt: skip
    assert not any("cores" in line and "·" in line for line in text)
