"""What a run's supervisor notices while it goes on: no progress, a loss that is no number, a full disk."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model import Agent
from orchestrator.runtime import rundir
from orchestrator.runtime.agent import health
from orchestrator.runtime.agent.health import Health, Used
from orchestrator.runtime.steps import finite
from orchestrator.runtime.steps.log import StepLog
from tests.unit.job_runs import folder, python, to_the_end


@dataclass
class Watched:
    """A run's folder, and its health by a clock of ours."""

    run: rundir.RunDir
    now: float = 0.0
    used: Used = field(default_factory=lambda: Used(0.0, 0))
    health: Health = field(init=False)

    def watch(self, stall: float = 60.0, *, stops: bool = False) -> None:
        self.health = Health(self.run, "/", stall, stops, lambda: self.used, lambda: self.now)

    def after(self, seconds: float) -> health.Stop | None:
        """Look once a second for so long; the first stop."""
        for _ in range(int(seconds)):
            self.now += 1
            stop = self.health.look()
            if stop:
                return stop
        return None

    def printed(self, text: str) -> None:
        with open(self.run.log, "a") as log:
            log.write(text)

    def traced(self, **line: Any) -> None:
        with open(self.run.trace, "a") as trace:
            trace.write(json.dumps(line) + "\n")

    def noticed(self) -> list[str]:
        return [each["what"] for each in self.health.noticed]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    run = rundir.open_run(str(tmp_path), "r")
    Path(run.root).mkdir(parents=True)
    made = Watched(run)
    made.watch()
    return made


def test_output_steps_and_work_are_progress(watched: Watched) -> None:
    assert watched.after(50) is None
    watched.printed("epoch 1\n")
    assert watched.after(50) is None
    watched.used = Used(5.0, 0)  # of a script that shows no step: a core that works
    assert watched.after(50) is None
    watched.used = Used(5.0, 5 << 20)  # or a disk
    assert watched.after(50) is None
    watched.traced(event="first_step", n=1)
    assert watched.after(50) is None
    watched.traced(event="steps", total=40)
    assert watched.after(50) is None
    watched.traced(event="sample")
    stop = watched.after(20)
    assert stop and stop[0] == "stalled" and "no training step and no output" in stop[1]
    assert watched.noticed() == ["stalled"]


def test_once_steps_were_seen_a_core_that_spins_is_no_progress(watched: Watched) -> None:
    watched.traced(event="steps", total=40)
    for _ in range(59):
        watched.used = Used(watched.used.cpu + 4.0, 0)
        assert watched.after(1) is None
    stop = watched.after(3)
    assert stop and stop[0] == "stalled"


def test_a_little_work_is_none(watched: Watched) -> None:
    """The threads of a job that hangs wake up now and then."""
    stop = None
    for _ in range(70):
        watched.used = Used(watched.used.cpu + 0.01, watched.used.moved + 100)
        stop = stop or watched.after(1)
    assert stop and stop[0] == "stalled"


def test_nobody_asked_for_it(watched: Watched) -> None:
    watched.watch(stall=0.0)
    assert watched.after(5000) is None and watched.noticed() == []


@pytest.mark.parametrize(
    "text",
    [
        "loss: nan - val_loss: 0.3\n",
        "12/12 - 1s - loss: 0.5 - val_loss: inf\n",
        '{"loss": NaN}\n',
        "epoch 3 train_loss=-inf\n",
        "'loss': nan,\n",
    ],
)
def test_a_printed_loss_that_is_no_number(watched: Watched, text: str) -> None:
    watched.watch(stops=True)
    watched.traced(event="steps", total=12)
    assert watched.after(2) is None
    watched.printed(text[:6])
    watched.after(1)
    watched.printed(text[6:])
    stop = watched.after(2)
    assert stop and stop[0] == "not_finite" and "step 12" in stop[1]


@pytest.mark.parametrize(
    "text",
    [
        "loss: 0.3\n",
        "nantes_loss: 3\n",
        "loss: nanometres\n",
        "glossy: nan\n",
        "floss: nan\n",
        "loss: 1.nan\n",
    ],
)
def test_other_words_are_none(watched: Watched, text: str) -> None:
    watched.watch(stops=True)
    watched.printed(text)
    assert watched.after(3) is None and watched.noticed() == []


def test_a_disk_that_is_nearly_full_is_named_once(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs_result((4096, 4096, 1 << 24, 1 << 17, 1 << 17, 9, 9, 9, 0, 255))
    assert watched.after(3) is None
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    assert watched.after(9) is None
    (low,) = watched.health.noticed
    assert (low["what"], low["detail"]) == (
        "disk_low",
        "The disk is nearly full: 0.5 of 64.0 GiB are free.",
    )
    assert Path(watched.run.log).read_text().count("nearly full") == 1


def test_files_that_a_job_replaced_break_nothing(watched: Watched) -> None:
    for path in (watched.run.log, watched.run.trace):
        Path(path).symlink_to("/dev/zero")
    assert watched.after(3) is None
    for path in (watched.run.log, watched.run.trace):
        Path(path).unlink()
        Path(path).write_bytes(
            b'{"event": "steps", "total": "many"}\n{"event": "not_finite", "step": []}\n[' * 9
        )
    assert watched.after(3) is None
    assert watched.noticed() == ["not_finite"]


def test_the_loss_that_a_step_returns_is_looked_at(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Keras hands it over, also where nothing is printed. What has no loss is left alone."""
    now = [10.0]
    monkeypatch.setattr(finite, "perf_counter", lambda: now[0])
    log, check, other = StepLog(watched.run.trace), finite.LossCheck(), finite.LossCheck()
    for step, loss in enumerate((0.5, 0.4, float("nan"), float("nan")), 1):
        now[0] += 6
        check.look(log, {"loss": loss}, step)
        other.look(log, object(), step)
    assert watched.after(2) is None
    (noticed,) = watched.health.noticed
    assert (noticed["what"], noticed["step"]) == ("not_finite", 3)
    assert Path(watched.run.trace).read_text().count("not_finite") == 1


HANGS = "import time\nprint('begun', flush=True)\ntime.sleep(60)\n"


@pytest.mark.processes
def test_a_job_without_progress_is_ended(agent: Agent) -> None:
    state, output = to_the_end(agent, python(HANGS, stall=1.5))
    assert state.exit and state.exit.reason == "stalled"
    assert [each.what for each in state.exit.noticed] == ["stalled"]
    assert b"It made no progress for 2 s (stall)" in output
    assert json.loads((folder(agent) / "noticed.json").read_text())["noticed"]


NAN = "import time\nprint('loss: nan', flush=True)\ntime.sleep({})\n"


@pytest.mark.processes
def test_a_loss_that_is_no_number_is_named_and_ends_the_job_where_that_is_asked(agent: Agent) -> None:
    stopped, _ = to_the_end(agent, python(NAN.format(60), on_nan="stop"))
    assert stopped.exit and stopped.exit.reason == "not_finite"
    warned, output = to_the_end(agent, python(NAN.format(0), "other"))
    assert warned.exit and (warned.exit.reason, warned.exit.code) == ("completed", 0)
    (noticed,) = warned.exit.noticed
    assert (noticed.what, noticed.step) == ("not_finite", None) and "nan" in noticed.detail
    assert b"orch: Its loss is no finite number (nan)." in output
