"""Queued runs on this computer as the host: one after another, whoever of them is killed or cancelled."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.model import Agent, Job, RunState
from orchestrator.runtime import processes
from orchestrator.runtime.agent import queueing
from orchestrator.runtime.agent.watch import Idleness
from tests.unit.job_runs import HOST, agent_in, folder, shell, started, until

pytestmark = pytest.mark.processes


class Machine:
    """An agent, and jobs that write when they begin and end, and wait until they may end."""

    def __init__(self, agent: Agent, place: Path) -> None:
        self.agent, self._place = agent, place
        self._told = place / "told"
        self._told.touch()

    def job(self, name: str) -> Job:
        told, go = self._told, self._place / f"{name}.go"
        begin = f"echo {name} begins >> {told}; until [ -e {go} ]; do sleep 0.02; done"
        return shell(f"{begin}; echo {name} ends >> {told}", name)

    def queue(self, *names: str) -> None:
        for name in names:
            jobs.start(HOST, self.agent, self.job(name), awaited=True, queued=True)

    def let_end(self, *names: str) -> None:
        for name in names:
            (self._place / f"{name}.go").touch()

    def state(self, name: str) -> RunState:
        return jobs.state(HOST, self.agent, name)

    def states(self, *names: str) -> list[str]:
        return [self.state(name).state for name in names]

    def until_running(self, name: str) -> None:
        until(lambda: self.state(name).state == "running")

    def until_ended(self, *names: str) -> None:
        until(lambda: set(self.states(*names)) == {"ended"})

    def kill_waiting(self, name: str) -> None:
        queued = json.loads((folder(self.agent, name) / "queued.json").read_text())
        os.kill(queued["pid"], signal.SIGKILL)
        until(lambda: self.state(name).state == "absent")

    @property
    def told(self) -> list[str]:
        return self._told.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    place = tmp_path / "place"
    place.mkdir()
    with agent_in(tmp_path / "base") as agent:
        made = Machine(agent, place)
        yield made
        for run in sorted(Path(agent.base).glob("runs/*"), reverse=True):
            jobs.cancel(HOST, agent, run.name, 0)


def in_turn(*names: str) -> list[str]:
    return [f"{name} {what}" for name in names for what in ("begins", "ends")]


def test_queued_runs_begin_one_after_another_in_their_order(machine: Machine) -> None:
    machine.queue("c", "a", "b")
    machine.until_running("c")
    assert machine.states("a", "b") == ["queued", "queued"]
    assert machine.state("a").started_at is None
    machine.let_end("b", "a")
    assert machine.states("a", "b") == ["queued", "queued"]
    machine.let_end("c")
    machine.until_ended("a", "b", "c")
    assert machine.told == in_turn("c", "a", "b")
    first, second = machine.state("c"), machine.state("a")
    assert first.ended_at and second.started_at and second.started_at >= first.ended_at


def test_a_run_that_was_not_queued_comes_first(machine: Machine) -> None:
    jobs.start(HOST, machine.agent, machine.job("own"))
    machine.queue("a")
    machine.let_end("a")
    assert machine.states("own", "a") == ["running", "queued"]
    machine.let_end("own")
    machine.until_ended("a")
    assert machine.told == in_turn("own", "a")


def test_a_second_start_of_a_queued_run_finds_it(machine: Machine) -> None:
    machine.queue("a", "b")
    machine.queue("b", "a")
    assert jobs.start(HOST, machine.agent, machine.job("b")).state == "queued"
    machine.let_end("a", "b")
    machine.until_ended("a", "b")
    machine.queue("a", "b")
    assert machine.told == in_turn("a", "b")


def test_a_waiting_supervisor_that_is_killed_lets_nobody_go_ahead(machine: Machine) -> None:
    """The one behind it still waits for the first; the killed one, queued again, comes last."""
    machine.queue("a", "b", "c")
    machine.until_running("a")
    machine.kill_waiting("b")
    machine.let_end("b", "c")
    time.sleep(2 * (queueing.LATER_S + queueing.NEXT_S))  # both looks that the one behind it takes
    assert machine.states("a", "c") == ["running", "queued"]
    machine.queue("b")
    assert machine.states("a", "b", "c") == ["running", "queued", "queued"]
    machine.let_end("a")
    machine.until_ended("a", "b", "c")
    assert machine.told == in_turn("a", "c", "b")


def test_a_job_whose_supervisor_was_killed_still_has_its_turn(machine: Machine) -> None:
    machine.queue("a", "b")
    machine.until_running("a")
    os.kill(started(machine.agent, "a")["supervisor"]["pid"], signal.SIGKILL)
    until(lambda: machine.state("a").state == "lost")
    machine.let_end("b")
    assert machine.state("b").state == "queued"
    machine.let_end("a")
    machine.until_ended("b")
    assert machine.told == in_turn("a", "b")


def test_a_queued_run_can_be_cancelled_and_never_begins(machine: Machine) -> None:
    machine.queue("a", "b", "c")
    machine.until_running("a")
    ended = jobs.cancel(HOST, machine.agent, "b")
    assert ended.state == "ended" and ended.exit and ended.started_at is None and ended.ended_at
    assert (ended.exit.reason, ended.exit.code) == ("cancelled", None)
    assert machine.states("a", "c") == ["running", "queued"]
    place = (folder(machine.agent, "b") / "queued.json").read_bytes()
    machine.queue("b")
    assert machine.state("b") == ended
    assert (folder(machine.agent, "b") / "queued.json").read_bytes() == place
    machine.let_end("a", "b", "c")
    machine.until_ended("a", "c")
    assert machine.told == in_turn("a", "c")
    assert b"cancelled before it began" in (folder(machine.agent, "b") / "output.log").read_bytes()
    assert jobs.left(HOST, machine.agent, "b").entries == ()


def test_the_next_run_begins_when_the_active_one_is_cancelled(machine: Machine) -> None:
    machine.queue("a", "b")
    machine.until_running("a")
    jobs.cancel(HOST, machine.agent, "a", 0)
    machine.until_running("b")


def test_output_can_be_followed_from_the_queue_on(machine: Machine) -> None:
    machine.queue("a")
    jobs.start(HOST, machine.agent, shell("echo hello", "b"), queued=True)
    machine.let_end("a")
    output = bytearray()
    jobs.follow(HOST, machine.agent, "b", 0, output.extend)
    assert output == b"hello\n"


def test_a_machine_with_queued_runs_is_not_idle(machine: Machine) -> None:
    """Nor is it while only the results of one that never began are unfetched."""
    base = machine.agent.base
    now = [0.0]
    idleness = Idleness(base, lambda: now[0])
    machine.queue("a", "b")
    machine.until_running("a")
    os.kill(started(machine.agent, "a")["supervisor"]["pid"], signal.SIGKILL)
    job = started(machine.agent, "a")["job"]
    assert machine.state("b").state == "queued"
    (folder(machine.agent, "a") / "collected").touch()
    now[0] += 1000
    assert idleness.seconds() == 0
    jobs.cancel(HOST, machine.agent, "b")
    os.kill(job["pid"], signal.SIGKILL)
    until(lambda: not processes.alive(job["pid"], job["start"]))
    now[0] += 1000
    assert idleness.seconds() == 0
    jobs.mark_collected(HOST, machine.agent, "b")
    idleness.seconds()
    now[0] += 1000
    assert idleness.seconds() == 1000


def test_no_run_begins_while_the_end_of_the_machine_is_announced(machine: Machine) -> None:
    machine.queue("a", "b")
    machine.until_running("a")
    notice = Path(machine.agent.base) / "notice.json"
    notice.write_text(json.dumps({"text": "It ends.", "ends_at": 1e10, "reason": "preempted"}))
    machine.let_end("a", "b")
    until(lambda: machine.state("a").state == "ended")
    assert machine.state("b").state == "queued"
    notice.unlink()
    machine.until_ended("b")


def test_a_queued_run_waits_to_be_fetched_also_by_a_damaged_ledger(machine: Machine) -> None:
    machine.queue("a", "b")
    assert [each.run_id for each in jobs.waiting(HOST, machine.agent.base)] == ["a", "b"]


def test_a_job_that_cannot_begin_when_its_turn_comes_is_told_as_failed(machine: Machine) -> None:
    machine.queue("a", "b")
    (folder(machine.agent, "b") / "output.log").mkdir()
    machine.let_end("a")
    machine.until_ended("b")
    ended = machine.state("b").exit
    assert ended and ended.reason == "failed" and "could not be started" in ended.detail
