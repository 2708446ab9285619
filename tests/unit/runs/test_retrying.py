"""Runs that are begun again by themselves: other machines, one id, and what stops that."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.api.logs import logs
from orchestrator.errors import Fault, ProviderError
from orchestrator.plan import Plan
from orchestrator.profile import load
from orchestrator.runs import retries
from orchestrator.session.project import Project
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = pytest.mark.processes

SCRIPT = """
import os, time
attempt = os.environ["ORCH_ATTEMPT"]
print("begun", attempt, flush=True)
if int(attempt) < {last}:
    time.sleep(60)
open("result.txt", "w").write(attempt)
"""
RETRY = "retry: {interruption: 2}\n"


@dataclass
class Interrupted:
    """A project whose machine is taken away whenever an attempt has begun, `times` times in all."""

    folder: Path
    cloud: HereCloud
    times: int = 0
    end: str = "take_back"
    shown: bytearray = field(default_factory=bytearray)
    said: list[str] = field(default_factory=list)

    @property
    def profile(self) -> Path:
        return self.folder / "orch.yaml"

    def write(self, last: int, more: str = RETRY) -> None:
        here_cloud.project(self.folder, SCRIPT.format(last=last), more=more)

    def output(self, data: bytes) -> None:
        self.shown += data
        if data.startswith(b"begun") and self.times:
            self.times -= 1
            (machine,) = self.cloud.alive()
            threading.Thread(target=getattr(self.cloud, self.end), args=(machine,)).start()

    def say(self, text: str) -> None:
        self.said.append(text)

    def transfer(self, label: str, done: int, total: int) -> None:
        pass

    def run(self, **wishes: Any) -> orch.RunRecord:
        told: dict[str, Any] = {"folder": self.folder, "output": self.output, "progress": self}
        return orch.run(self.profile, run_id="one", **told, **wishes)

    def train(self, **wishes: Any) -> orch.RunRecord:
        told: dict[str, Any] = {"folder": self.folder, "output": self.output, "progress": self}
        return orch.train(run_id="one", **told, **wishes)

    def record(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "runs/one/run.json").read_text()))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Interrupted]:
    cloud = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    made = Interrupted(tmp_path / "p", cloud)
    yield made
    for machine in cloud.alive():
        cloud.kill(machine)


def reasons(attempts: Sequence[Any]) -> list[str]:
    return [each["reason"] for each in attempts]


@pytest.mark.parametrize("end", ["take_back", "kill"])
def test_a_run_whose_machines_go_is_one_run_with_three_attempts(job: Interrupted, end: str) -> None:
    job.times, job.end = 2, end
    job.write(last=3)
    record = job.run()
    why = {"take_back": "preempted", "kill": "lost"}[end]
    assert record.succeeded and reasons(record.attempts) == [why, why, "completed"]
    assert (job.folder / "runs/one/outputs/result.txt").read_text() == "3"
    assert [each["number"] for each in record.attempts] == [1, 2, 3]
    assert [each["zone"] for each in record.attempts] == ["r1-a", "r1-b", "r1-a"], "elsewhere first"
    assert len({each["machine"] for each in record.attempts}) == 3
    assert [each["retried"]["interruption"] for each in record.attempts] == [0, 1, 2]
    assert not job.cloud.alive()
    log = (job.folder / "runs/one/output.log").read_bytes()
    assert log == bytes(job.shown), "a follower saw what the log holds, each byte once"
    first, mark, second, _, third = log.decode().splitlines()
    assert [first, second, third] == ["begun 1", "begun 2", "begun 3"]
    assert mark.startswith(f"[orch] attempt 1 ended: {why}.") and mark.endswith("Another attempt follows.")
    assert (job.folder / "runs/one/attempts/2/output.log").read_text() == "begun 2\n"
    again = bytearray()
    logs("one", folder=job.folder, output=again.extend)
    assert bytes(again) == log
    assert job.record()["attempts"] == json.loads(json.dumps(list(record.attempts)))


def test_train_goes_on_in_its_lease_and_keeps_the_last_machine(job: Interrupted) -> None:
    job.times = 1
    job.write(last=2)
    lease = orch.up(job.profile, folder=job.folder).lease
    record = job.train()
    assert reasons(record.attempts) == ["preempted", "completed"]
    (status,) = orch.status(folder=job.folder)
    (machine,) = job.cloud.alive()
    assert (status.lease, status.machine) == (lease, machine.id) and record.machine
    assert record.machine["id"] == machine.id


def test_nothing_is_begun_again_unless_the_profile_says_so(job: Interrupted) -> None:
    job.times = 1
    job.write(last=2, more="")
    with pytest.raises(orch.Preempted):
        job.run()
    assert len(job.cloud._made) == 1


def test_used_up_retries_end_as_the_last_attempt_did_and_a_new_call_has_them_anew(job: Interrupted) -> None:
    job.times = 3
    job.write(last=9, more="retry: {interruption: 1}\n")
    with pytest.raises(orch.Preempted) as caught:
        job.run()
    assert caught.value.exit_code == 11 and "retried once" in caught.value.message
    assert reasons(job.record()["attempts"]) == ["preempted"] * 2
    with pytest.raises(orch.Preempted):
        job.run(retry_failed=False)
    assert len(job.cloud._made) == 2, "used up: nothing is rented"
    job.write(last=4, more="retry: {interruption: 1}\n")
    assert [each["retried"]["interruption"] for each in job.run().attempts] == [0, 1, 0, 1]


def test_a_call_that_died_is_continued_by_the_same_command(job: Interrupted) -> None:
    """It died when the first attempt was recorded as preempted, before another machine was made."""
    job.times = 1
    job.write(last=2, more="")
    orch.up(job.profile, folder=job.folder)
    with pytest.raises(orch.Preempted):
        job.train()
    job.write(last=2)
    record = job.train()
    assert reasons(record.attempts) == ["preempted", "completed"]
    assert record.attempts[1]["retried"] == {"interruption": 1, "error": 0}


def test_watch_carries_on_what_run_began_and_ends_its_machine(job: Interrupted) -> None:
    """The caller of `run` is gone, then the machine: a schedule that knows the id alone sees to its end."""
    job.write(last=2)
    begun = threading.Event()

    def vanish(data: bytes) -> None:
        if data.startswith(b"begun"):
            begun.set()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        orch.run(job.profile, run_id="one", folder=job.folder, output=vanish)
    (machine,) = job.cloud.alive()
    job.cloud.take_back(machine)
    record = orch.watch("one", folder=job.folder, progress=job)
    assert reasons(record.attempts) == ["preempted", "completed"]
    assert not job.cloud.alive() and orch.status(folder=job.folder) == ()
    assert orch.watch("one", folder=job.folder).started is False
    assert len(job.cloud._made) == 2
    with pytest.raises(orch.UsageError, match="Similar ids: one"):
        orch.watch("on", folder=job.folder)


def test_watch_goes_on_in_the_lease_of_train(job: Interrupted) -> None:
    job.write(last=2)
    lease = orch.up(job.profile, folder=job.folder).lease
    job.train(detach=True)
    job.cloud.kill(job.cloud.alive()[0])
    record = orch.watch("one", folder=job.folder, progress=job)
    assert reasons(record.attempts) == ["lost", "completed"]
    (status,) = orch.status(folder=job.folder)
    assert status.lease == lease and len(job.cloud.alive()) == 1
    job.write(last=9)
    with pytest.raises(orch.UsageError, match=r"train.py changed"):
        orch.watch("one", folder=job.folder)


def test_a_machine_that_is_being_taken_back_is_not_used_again(job: Interrupted) -> None:
    """Its last attempt came home before the machine went."""
    job.write(last=1)
    orch.up(job.profile, folder=job.folder)
    (doomed,) = job.cloud.alive()
    job.train()
    told = job.record()
    told["exit"]["reason"] = told["attempts"][0]["reason"] = "preempted"
    (job.folder / "runs/one/run.json").write_text(json.dumps(told))
    record = job.train()
    (machine,) = job.cloud.alive()
    assert machine.id != doomed.id and record.machine and record.machine["id"] == machine.id
    assert reasons(record.attempts) == ["preempted", "completed"]


def test_a_command_that_fails_is_begun_again_on_its_machine(job: Interrupted) -> None:
    job.write(last=1, more="retry: {error: 2}\n")
    (job.folder / "train.py").write_text("import os\nraise SystemExit(os.environ['ORCH_ATTEMPT'] != '3')\n")
    record = job.run()
    assert reasons(record.attempts) == ["failed", "failed", "completed"]
    assert len(job.cloud._made) == 1


def test_a_dearer_machine_is_asked_about_and_a_no_keeps_the_run_as_it_is(job: Interrupted) -> None:
    job.write(last=2)
    asked: list[Plan] = []

    def approve(plan: Plan) -> bool:
        asked.append(plan)
        return False

    orch.up(job.profile, folder=job.folder)
    job.times = 1
    with pytest.raises(ProviderError) as refused:
        job.train(approve=approve)
    assert (refused.value.fault, refused.value.exit_code) == (Fault.CAPACITY, 4)
    assert [plan.price for plan in asked] == [0.06]
    assert not job.cloud.alive() and job.record()["exit"]["reason"] == "preempted"
    job.write(last=2, more=f"max_price: 0.06\n{RETRY}")
    assert job.train(approve=approve).succeeded, "max_price was agreed to"
    assert len(asked) == 1


def test_a_budget_counts_all_attempts(job: Interrupted) -> None:
    """The second machine may cost $0.03 until its deadline: all of the budget, and the first took some."""
    job.times = 1
    job.write(last=2, more=f"budget: 0.03\n{RETRY}")
    with pytest.raises(ProviderError) as refused:
        job.run()
    assert (refused.value.code, refused.value.exit_code) == ("Budget", 4)
    assert reasons(job.record()["attempts"]) == ["preempted"]
    assert not job.cloud.alive()
    job.write(last=2, more=f"budget: 0.04\n{RETRY}")
    assert reasons(job.run().attempts) == ["preempted", "completed"]


def test_a_machine_that_went_at_its_deadline_is_not_replaced(
    job: Interrupted, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.times, job.end = 1, "kill"
    job.write(last=2)
    monkeypatch.setattr(retries, "_CLOCKS_S", 3600.0)  # its deadline is in 30 minutes
    with pytest.raises(orch.RunLost):
        job.run()
    assert len(job.cloud._made) == 1


def test_what_the_profile_may_say(tmp_path: Path) -> None:
    def retry(text: str) -> Any:
        here_cloud.project(tmp_path, "", more=f"retry: {text}\n")
        return load(tmp_path / "orch.yaml")

    known = retry("{interruption: 5, no-capacity: 2h, error: 1}")
    assert (known.retry.interruption, known.retry.error, known.wait) == (5, 1, 7200)
    assert load(tmp_path / "orch.yaml", overrides=["retry.no-capacity=1h"]).wait == 3600
    assert load(tmp_path / "orch.yaml", environ={"ORCH_SET_RETRY__NO_CAPACITY": "3h"}).wait == 10800
    for text, advice in (
        ("{interruptions: 5}", "did you mean interruption?"),
        ("{no_capacity: 2h}", "did you mean no-capacity?"),
        ("{no-capacity: 3}", "write 3s for seconds"),
        ("{interruption: 1000}", "retry.interruption: 1000 is out of range"),
        ("{interruption: 2h}", "retry.interruption"),
        ("5", "expected a mapping of interruption, no-capacity, error"),
        ("{no-capacity: 2h}\nwait: 1h", "`wait` is the same setting, with another value (1h)"),
    ):
        with pytest.raises(orch.ProfileError) as refused:
            retry(text)
        assert advice in refused.value.message
    assert retry("{no-capacity: 2h}\nwait: 2h").wait == 7200
    assert os.environ.get("ORCH_ATTEMPT") is None
    assert Project.at(tmp_path)
