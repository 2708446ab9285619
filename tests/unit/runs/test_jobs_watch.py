"""The watcher that powers a machine off; the command that it gives here only leaves a mark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import jobs
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Job, Machine, MachineState, Silent
from orchestrator.runtime import rundir
from orchestrator.runtime.agent import deadline
from orchestrator.runtime.agent.watch import Idleness, Orders, due
from orchestrator.session.session import Session
from orchestrator.stack.runtime_files import lay_out

pytestmark = pytest.mark.processes

HOST = HereHost()
NEVER = 0


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    base = tmp_path / "base"
    base.mkdir()
    yield Agent(sys.executable, str(lay_out(base)), str(base))
    watcher = base / "watcher.json"
    if watcher.exists():
        os.kill(json.loads(watcher.read_text())["pid"], signal.SIGKILL)


def watch(agent: Agent, left: float, idle: float, mark: Path) -> dict[str, Any]:
    words = ("--left", str(left), "--idle", str(idle), "--", "touch", str(mark))
    done = HOST.run(agent.argv("watch", agent.base, *words), timeout=60)
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def comes(mark: Path, seconds: float = 30) -> bool:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and not mark.exists():
        time.sleep(0.05)
    return mark.exists()


def sleeper(seconds: int) -> Job:
    return Job("r", ("sleep", str(seconds)), sys.executable, cwd="/")


class Clock:
    """A clock that the test turns."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


# ---------------------------------------------------------------- the deadline


def test_the_deadline_is_carried_out_although_a_run_goes_on(agent: Agent, tmp_path: Path) -> None:
    jobs.start(HOST, agent, Job("r", ("sh", "-c", "trap '' TERM; sleep 60"), sys.executable, cwd="/"))
    watch(agent, 1.5, NEVER, tmp_path / "off")
    assert comes(tmp_path / "off")
    jobs.cancel(HOST, agent, "r", 0)


def test_before_the_deadline_jobs_are_asked_to_save(agent: Agent, tmp_path: Path) -> None:
    """Without anybody connected; the run's end is told as what it was, and there is time left to fetch it."""
    code = f"trap 'echo saved >{tmp_path}/saved; exit 0' TERM; while :; do sleep 0.05; done"
    jobs.start(HOST, agent, Job("r", ("sh", "-c", code), sys.executable, cwd="/"), awaited=True)
    watch(agent, 40, NEVER, tmp_path / "off")
    armed = Path(agent.base) / "deadline.json"
    facts = json.loads(armed.read_text())
    armed.write_text(json.dumps({**facts, "boottime": facts["boottime"] - 34}))  # in its last quarter
    until = time.monotonic() + 30
    while jobs.state(HOST, agent, "r").state == "running" and time.monotonic() < until:
        time.sleep(0.05)
    ended = jobs.state(HOST, agent, "r").exit
    assert ended is not None
    assert (ended.reason, ended.code) == ("deadline", 0)
    assert "max_duration" in ended.detail
    assert (tmp_path / "saved").exists() and not (tmp_path / "off").exists()
    assert "orch: The deadline of this machine" in (Path(agent.base) / "runs/r/output.log").read_text()
    assert comes(tmp_path / "off")


def test_a_deadline_once_armed_cannot_be_moved(agent: Agent, tmp_path: Path) -> None:
    """A client whose clock was set by a day meanwhile changes nothing; nor do orders of a job."""
    watch(agent, 3, NEVER, tmp_path / "off")
    assert watch(agent, 86400, NEVER, tmp_path / "off")["left"] < 3
    assert comes(tmp_path / "off")


def test_the_time_of_day_may_be_set_on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = str(tmp_path)
    deadline.arm(base, 100)
    for shift in (-86400, 86400):
        now = time.time() + shift
        monkeypatch.setattr(deadline.time, "time", lambda now=now: now)
        assert 99 < (deadline.left(base) or 0) <= 100


def test_a_machine_that_was_restarted_keeps_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = str(tmp_path)
    deadline.arm(base, 100)
    monkeypatch.setattr(deadline, "boot_id", lambda: "another")
    monkeypatch.setattr(deadline, "_boottime", lambda: 5.0)
    assert 99 < (deadline.left(base) or 0) <= 100


@pytest.mark.parametrize(
    ("tells", "armed"), [(600, 600), (600 + 86400, 1200), (600 - 86400, 1200)], ids=["right", "back", "ahead"]
)
def test_a_clock_that_was_set_here_after_the_machine_was_made(
    agent: Agent, tells: float, armed: float
) -> None:
    """The time left by this computer's clock (`tells`) is limited to the requested time and never zero."""
    until = datetime.now(UTC) + timedelta(seconds=tells)
    detail = {"power_off": ["true"]}
    machine = Machine(
        "local", "m", "m", MachineState.RUNNING, {}, "t", "z", 0.0, datetime.now(UTC), until, detail
    )
    profile: Any = SimpleNamespace(idle_duration=None, max_duration=1200)
    unused: Any = None
    ledger: Any = SimpleNamespace(lease=lambda: SimpleNamespace(holding=None))
    Session(unused, ledger, profile, unused, machine, HOST, agent, Silent()).watch_idleness()
    kept = json.loads((Path(agent.base) / "deadline.json").read_text())
    assert kept["lasts"] == pytest.approx(armed, abs=5)


# ---------------------------------------------------------------- one watcher


def test_there_is_one_watcher_and_it_goes_by_the_last_orders(agent: Agent, tmp_path: Path) -> None:
    first = watch(agent, NEVER, 3600, tmp_path / "old")
    again = watch(agent, NEVER, 3600, tmp_path / "old")
    assert first["pid"] == again["pid"]
    assert watch(agent, NEVER, 0.5, tmp_path / "new")["pid"] == first["pid"]
    assert comes(tmp_path / "new") and not (tmp_path / "old").exists()


def test_many_at_once_make_one_watcher(agent: Agent) -> None:
    words = ("--left", "3600", "--idle", "0", "--", "true")
    started = [
        subprocess.Popen(agent.argv("watch", agent.base, *words), stdout=subprocess.PIPE) for _ in range(5)
    ]
    pids = {json.loads(process.communicate(timeout=60)[0])["pid"] for process in started}
    assert len(pids) == 1


def test_a_killed_watcher_is_replaced(agent: Agent, tmp_path: Path) -> None:
    first = watch(agent, 3600, NEVER, tmp_path / "off")
    os.kill(first["pid"], signal.SIGKILL)
    assert watch(agent, 3600, NEVER, tmp_path / "off")["pid"] != first["pid"]


def test_a_watcher_of_another_release_is_replaced(agent: Agent, tmp_path: Path) -> None:
    """It would not understand these orders, and die of them; then nobody would watch."""
    first = watch(agent, NEVER, 3600, tmp_path / "off")
    known = Path(agent.base) / "watcher.json"
    known.write_text(json.dumps({**json.loads(known.read_text()), "program": "/opt/orch/runtime/older"}))
    assert watch(agent, NEVER, 0.5, tmp_path / "off")["pid"] != first["pid"]
    assert comes(tmp_path / "off")


# ---------------------------------------------------------------- use


def test_an_installation_that_takes_longer_than_the_idle_time_is_use(agent: Agent, tmp_path: Path) -> None:
    mark = tmp_path / "off"
    waiting = "import time; time.sleep(600)"
    install = subprocess.Popen([sys.executable, "-c", waiting, f"{agent.base}/uv/cache"])
    try:
        watch(agent, 3600, 2, mark)
        assert not comes(mark, 6), "it was ended while its packages were installed"
    finally:
        install.kill()
        install.wait()
    assert comes(mark)


def test_an_idle_machine_is_ended_once_its_run_is_over(agent: Agent, tmp_path: Path) -> None:
    jobs.start(HOST, agent, sleeper(3))
    watch(agent, NEVER, 0.5, tmp_path / "off")
    assert comes(tmp_path / "off")
    assert jobs.state(HOST, agent, "r").state == "ended"


def test_results_that_nobody_has_fetched_are_use(agent: Agent, tmp_path: Path) -> None:
    """The trap: a detached run ends, nobody is there, and the machine takes the results with it."""
    jobs.start(HOST, agent, sleeper(0), awaited=True)
    watch(agent, NEVER, 0.5, tmp_path / "off")
    while jobs.state(HOST, agent, "r").state == "running":
        time.sleep(0.05)
    assert not comes(tmp_path / "off", seconds=4)
    jobs.mark_collected(HOST, agent, "r")
    assert comes(tmp_path / "off")


def test_what_counts_as_use(tmp_path: Path) -> None:
    base, clock = str(tmp_path), Clock()
    idleness = Idleness(base, clock)
    orders = Orders(100, ["true"])

    def after(seconds: float) -> str | None:
        clock.now += seconds
        return due(base, orders, idleness.seconds())

    assert after(0) is None
    assert after(99) is None and after(2) == "idle"
    assert due(base, Orders(NEVER, []), 1e9) is None
    (tmp_path / "active").touch()
    assert after(0) is None and after(99) is None and after(2) == "idle"
    run = rundir.open_run(base, "r")
    Path(run.root).mkdir(parents=True)
    lock = rundir.try_lock(run)
    assert lock is not None
    assert after(1000) is None
    os.close(lock)
    assert after(99) is None and after(2) == "idle"
    rundir.write_json(run.exit, {"reason": "completed"})
    assert after(0) is None and after(101) == "idle"


def test_the_deadline_is_due_also_where_the_machine_is_used(tmp_path: Path) -> None:
    base = str(tmp_path)
    deadline.arm(base, -1)
    assert due(base, Orders(NEVER, []), 0) == "deadline"
    assert due(base, Orders(NEVER, [], late=60), 0) is None


@pytest.mark.parametrize("reason", ["completed", "failed", "cancelled"])
def test_awaited_results_are_use_however_the_run_ended(tmp_path: Path, reason: str) -> None:
    base, clock = str(tmp_path), Clock()
    idleness = Idleness(base, clock)
    run = rundir.open_run(base, "r")
    Path(run.root).mkdir(parents=True)
    rundir.write_json(run.spec, {"awaited": True})
    rundir.write_json(run.started, {"job": {"pid": 1 << 30, "start": 1}})
    rundir.write_json(run.exit, {"reason": reason})
    clock.now += 1e6
    assert idleness.seconds() == 0
    Path(run.collected).touch()
    assert idleness.seconds() == 0
    clock.now += 100
    assert idleness.seconds() == 100


def test_a_job_whose_supervisor_was_killed_still_uses_the_machine(agent: Agent) -> None:
    jobs.start(HOST, agent, sleeper(60))
    started = json.loads((Path(agent.base) / "runs/r/started.json").read_text())
    os.kill(started["supervisor"]["pid"], signal.SIGKILL)
    while jobs.state(HOST, agent, "r").state != "lost":
        time.sleep(0.02)
    clock = Clock()
    idleness = Idleness(agent.base, clock)
    clock.now += 100
    assert idleness.seconds() == 0
    jobs.cancel(HOST, agent, "r", 0)
    idleness.seconds()
    clock.now += 100
    assert idleness.seconds() == 100
