"""The watcher that powers a machine off; the command that it gives here only leaves a mark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import jobs
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Job
from orchestrator.runtime import rundir
from orchestrator.runtime.watch import Orders, due
from orchestrator.stack.runtime_files import lay_out

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


def watch(agent: Agent, deadline: float, idle: float, mark: Path) -> dict[str, Any]:
    words = ("--deadline", str(deadline), "--idle", str(idle), "--", "touch", str(mark))
    done = HOST.run(agent.argv("watch", agent.base, *words), timeout=60)
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def comes(mark: Path, seconds: float = 30) -> bool:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and not mark.exists():
        time.sleep(0.05)
    return mark.exists()


def test_the_deadline_is_carried_out_although_a_run_goes_on(agent: Agent, tmp_path: Path) -> None:
    jobs.start(HOST, agent, Job("r", ("sleep", "60"), sys.executable, cwd="/"))
    watch(agent, time.time() + 1.5, NEVER, tmp_path / "off")
    assert comes(tmp_path / "off")
    jobs.cancel(HOST, agent, "r", 0)


def test_there_is_one_watcher_and_it_goes_by_the_last_orders(agent: Agent, tmp_path: Path) -> None:
    first = watch(agent, time.time() + 3600, NEVER, tmp_path / "old")
    again = watch(agent, time.time() + 3600, NEVER, tmp_path / "old")
    assert first["pid"] == again["pid"]
    assert watch(agent, time.time() + 0.5, NEVER, tmp_path / "new")["pid"] == first["pid"]
    assert comes(tmp_path / "new") and not (tmp_path / "old").exists()


def test_many_at_once_make_one_watcher(agent: Agent) -> None:
    words = ("--deadline", str(time.time() + 3600), "--idle", "0", "--", "true")
    started = [
        subprocess.Popen(agent.argv("watch", agent.base, *words), stdout=subprocess.PIPE) for _ in range(5)
    ]
    pids = {json.loads(process.communicate(timeout=60)[0])["pid"] for process in started}
    assert len(pids) == 1


def test_a_killed_watcher_is_replaced(agent: Agent, tmp_path: Path) -> None:
    first = watch(agent, time.time() + 3600, NEVER, tmp_path / "off")
    os.kill(first["pid"], signal.SIGKILL)
    assert watch(agent, time.time() + 3600, NEVER, tmp_path / "off")["pid"] != first["pid"]


def test_an_idle_machine_is_ended_once_its_run_is_over(agent: Agent, tmp_path: Path) -> None:
    jobs.start(HOST, agent, Job("r", ("sleep", "4"), sys.executable, cwd="/"))
    watch(agent, NEVER, 0.5, tmp_path / "off")
    assert comes(tmp_path / "off")
    assert jobs.state(HOST, agent, "r").state == "ended"


def test_what_counts_as_use(tmp_path: Path) -> None:
    base, orders, now = str(tmp_path), Orders(NEVER, 100, ["true"]), time.time()
    assert due(base, orders, began=now - 99, now=now) is None
    assert due(base, orders, began=now - 101, now=now) == "idle"
    assert due(base, Orders(NEVER, NEVER, []), began=0, now=now) is None
    assert due(base, Orders(now - 1, NEVER, []), began=now, now=now) == "deadline"
    active = tmp_path / "active"
    active.touch()
    assert due(base, orders, began=0, now=now + 90) is None
    assert due(base, orders, began=0, now=now + 110) == "idle"
    run = rundir.open_run(base, "r")
    Path(run.root).mkdir(parents=True)
    lock = rundir.try_lock(run)
    assert lock is not None
    assert due(base, orders, began=0, now=now + 110) is None
    os.close(lock)
    assert due(base, orders, began=0, now=now + 110) == "idle"
    rundir.write_json(run.exit, {"reason": "completed"})
    os.utime(run.exit, (now + 50, now + 50))
    assert due(base, orders, began=0, now=now + 110) is None


def test_a_job_whose_supervisor_was_killed_still_uses_the_machine(agent: Agent) -> None:
    jobs.start(HOST, agent, Job("r", ("sleep", "60"), sys.executable, cwd="/"))
    started = json.loads((Path(agent.base) / "runs/r/started.json").read_text())
    os.kill(started["supervisor"]["pid"], signal.SIGKILL)
    while jobs.state(HOST, agent, "r").state != "lost":
        time.sleep(0.02)
    orders = Orders(NEVER, 1, [])
    assert due(agent.base, orders, began=0, now=time.time() + 100) is None
    jobs.cancel(HOST, agent, "r", 0)
    assert due(agent.base, orders, began=0, now=time.time() + 100) == "idle"
