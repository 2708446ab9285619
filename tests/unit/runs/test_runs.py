"""`run`, run ids and their attempts, on machines that are folders of this computer."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import jsonschema
import pytest

import orchestrator as orch
from orchestrator.api.schemas import schema as orch_schema
from orchestrator.errors import Fault, Interrupted
from orchestrator.model import NotFetched, Refused
from orchestrator.runs import collect
from orchestrator.runtime import rundir
from orchestrator.session import session
from orchestrator.session.project import Project
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = pytest.mark.processes

E = TypeVar("E", bound=orch.OrchError)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


def test_a_run_costs_its_own_time_and_not_its_lease_s(cloud: HereCloud, tmp_path: Path) -> None:
    """The machine waited for a while, and served two runs: neither pays for that, nor for the other."""
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, "import time; time.sleep(0.2)\n")
    orch.up(profile, folder=folder)
    time.sleep(1.0)
    records = [orch.train(run_id=name, folder=folder) for name in ("one", "two")]
    for record in records:
        cost = record.cost
        assert cost is not None
        assert cost["run_seconds"] == cost["seconds"] == record.timings["train_s"]
        assert cost["run_usd"] == cost["usd"] == pytest.approx(cost["seconds"] / 3600 * 0.05, abs=1e-6)
        assert cost["lease_seconds"] > cost["seconds"] + 1.0
    assert sum(record.cost["usd"] for record in records if record.cost) < orch.status(folder=folder)[0].cost
    assert len(cloud.alive()) == 1


# ---------------------------------------------------------------- run: one call for up, train, down


class Told:
    """Collect messages to the user; wait for one."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def say(self, text: str) -> None:
        self.words.append(text)

    def transfer(self, label: str, done: int, total: int) -> None:
        pass

    def heard(self, text: str) -> bool:
        return any(text in said for said in self.words)


@dataclass
class Job:
    """A project whose profile is run, with what it was told."""

    folder: Path
    cloud: HereCloud
    told: Told

    @property
    def profile(self) -> Path:
        return self.folder / "orch.yaml"

    def script(self, text: str) -> None:
        (self.folder / "train.py").write_text(text)

    def run(self, run_id: str, **wishes: Any) -> orch.RunRecord:
        return orch.run(self.profile, run_id=run_id, folder=self.folder, progress=self.told, **wishes)

    def fails(self, error: type[E], run_id: str, **wishes: Any) -> E:
        with pytest.raises(error) as caught:
            self.run(run_id, **wishes)
        assert type(caught.value) is error
        return caught.value

    def begin(self, run_id: str, **wishes: Any) -> Future[orch.RunRecord]:
        """Run it in the background, until its job has printed "begun"."""
        seen = threading.Event()
        pool = ThreadPoolExecutor(max_workers=1)
        future = pool.submit(self.run, run_id, output=lambda data: b"begun" in data and seen.set(), **wishes)
        pool.shutdown(wait=False)
        while not seen.wait(0.1):
            assert not future.done(), future.result()
        return future

    def created(self) -> int:
        return len(self.cloud._made)

    def record(self, run_id: str) -> dict[str, Any]:
        return dict(json.loads((self.folder / "runs" / run_id / "run.json").read_text()))


def shown(record: orch.RunRecord) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(record.as_json()))


WAITS = "import time\nprint('begun', flush=True)\ntime.sleep(60)\n"
WRITES = "open('result.txt', 'a').write('one more')\nprint('begun', flush=True)\n"


@pytest.fixture
def job(cloud: HereCloud, tmp_path: Path) -> Iterator[Job]:
    here_cloud.project(tmp_path / "p", WRITES)
    made = Job(tmp_path / "p", cloud, Told())
    yield made
    for machine in cloud.alive():
        cloud.kill(machine)


def test_a_success_is_made_once_and_returned_until_something_changes(job: Job) -> None:
    data = job.folder / "data"
    data.mkdir()
    (data / "a.csv").write_text("1\n")
    with open(job.profile, "a") as profile:
        profile.write("data:\n  - source: data\n")
    first = job.run("one")
    assert first.succeeded and not job.cloud.alive()
    assert shown(job.run("one")) == shown(first) == job.record("one")
    assert first.attempts[0]["number"] == len(first.attempts) == 1

    (job.folder / "train.py").write_text(WRITES + "print('more')\n")
    (job.folder / "util.py").write_text("")
    (data / "a.csv").write_text("2\n")
    lock = job.folder / "requirements.lock"
    lock.write_text("# another\n" + lock.read_text())
    refused = job.fails(orch.UsageError, "one", overrides=["train.command=python train.py --epochs 2"])
    for word in ("train.py changed", "util.py is new", "the data", "the lock", "--epochs 2"):
        assert word in refused.message
    assert job.created() == 1, "nothing was rented for that"
    assert job.record("one") == shown(first)


@pytest.mark.parametrize(("end", "error"), [("kill", orch.RunLost), ("take_back", orch.Preempted)])
def test_a_run_that_went_with_its_machine_keeps_nothing_waiting(
    job: Job, end: str, error: type[orch.RunFailed]
) -> None:
    job.script(WAITS)
    running = job.begin("one")
    (machine,) = job.cloud.alive()
    getattr(job.cloud, end)(machine)
    with pytest.raises(error):
        running.result(60)
    assert orch.status(folder=job.folder) == (), "no lease is left open"
    job.fails(error, "one", retry_failed=False)
    assert job.created() == 1, "the old failure needs no machine"

    job.script(WRITES)
    again = job.run("one")
    assert again.succeeded
    assert not job.cloud.alive()
    lost, won = again.attempts
    assert (lost["number"], lost["reason"], lost["machine"]) == (1, record_reason(error), machine.id)
    assert (won["number"], won["reason"]) == (2, "completed")
    assert any("train.py changed" in change for change in won["changed"])
    assert lost["started_at"] < lost["ended_at"] <= won["started_at"] < won["ended_at"]
    assert lost["usd"] > 0
    assert "begun" in (job.folder / "runs/one/attempts/1/output.log").read_text()
    assert (job.folder / "runs/one/outputs/result.txt").exists()


def record_reason(error: type[orch.RunFailed]) -> str:
    return {orch.RunLost: "lost", orch.Preempted: "preempted"}[error]


def test_a_run_that_nobody_saw_end_is_settled_by_the_next_call(job: Job) -> None:
    """The first caller died, then the machine: neither `down` nor another run is in its way."""
    job.script(WAITS)
    orch.up(job.profile, folder=job.folder)
    orch.train(run_id="one", detach=True, folder=job.folder)
    job.cloud.kill(job.cloud.alive()[0])
    job.fails(orch.RunLost, "one", retry_failed=False)
    assert job.created() == 1
    job.script(WRITES)
    assert job.run("two").succeeded
    assert job.told.heard("it was there before this call"), "the lease is the user's"
    assert orch.down(folder=job.folder).proven_gone


def test_a_failed_run_id_is_tried_again_as_the_project_is_now(job: Job) -> None:
    job.script("print('begun'); open('half.txt', 'w').write('x'); raise SystemExit(3)\n")
    failed = job.fails(orch.RunFailed, "one")
    assert "was deleted" in (failed.exists or "")
    assert not job.cloud.alive()
    assert f"orch run {job.profile} --run-id one" == failed.next_command
    job.fails(orch.RunFailed, "one", retry_failed=False)
    assert job.created() == 1
    assert not job.fails(orch.RunFailed, "one").record.attempts[1]["changed"], "the same again"
    job.script(WRITES)
    done = job.run("one")
    assert [each["reason"] for each in done.attempts] == ["failed", "failed", "completed"]
    for number in (1, 2):
        assert (job.folder / f"runs/one/attempts/{number}/outputs/half.txt").read_text() == "x"
        assert (
            json.loads((job.folder / f"runs/one/attempts/{number}/run.json").read_text())["exit"]["code"] == 3
        )
    assert not (job.folder / "runs/one/outputs/half.txt").exists()
    schema = orch_schema("run")
    jsonschema.Draft202012Validator(schema).validate(job.record("one"))


def test_train_tries_again_on_the_same_machine_where_it_is_asked_to(job: Job) -> None:
    job.script("print('a' * 5000); raise SystemExit(3)\n")
    orch.up(job.profile, folder=job.folder)
    with pytest.raises(orch.RunFailed):
        orch.train(run_id="one", folder=job.folder)
    job.script("print('second')\n")
    with pytest.raises(orch.RunFailed):
        orch.train(run_id="one", folder=job.folder)
    shown: list[bytes] = []
    done = orch.train(run_id="one", folder=job.folder, retry_failed=True, output=shown.append)
    assert done.succeeded and b"".join(shown[1:]) == b"second\n"
    assert shown[0].startswith(b"[orch] attempt 1 ended: failed.")
    (machine,) = job.cloud.alive()
    there = {path.name for path in (job.cloud.base(machine.id) / "runs").iterdir()}
    assert {"one", "one@1"} <= there
    with pytest.raises(orch.UsageError, match=r"train.py changed"):
        job.script("print('third')\n")
        orch.train(run_id="one", folder=job.folder)


CHANGES = """import pathlib
pathlib.Path("kept.txt").write_text("a")
print("begun", flush=True)
raise SystemExit(3)
"""


def test_an_attempt_that_was_replaced_keeps_neither_the_machine_nor_down_waiting(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the first attempt was changed after its end, and could come; the machine was never told that
    the rest was fetched. Then the run is tried again."""
    job.script(CHANGES)
    orch.up(job.profile, folder=job.folder)
    really = collect.fetch

    def fetch(*args: Any, **wishes: Any) -> collect.Fetched:
        why = NotFetched("log.txt", "file", Refused.CHANGED, "it was changed after the run's end")
        return replace(really(*args, **wishes), refused=(why,))

    with monkeypatch.context() as patch, pytest.raises(orch.RunFailed):
        patch.setattr(collect, "fetch", fetch)
        orch.train(run_id="one", folder=job.folder)
    runs = job.cloud.base(job.cloud.alive()[0].id) / "runs"
    assert rundir.uncollected(rundir.open_run(str(runs.parent), "one")), "log.txt can still come"
    with pytest.raises(orch.UsageError, match=r"log.txt of one is on the machine only"):
        orch.down(folder=job.folder)

    job.script(WRITES)
    done = orch.train(run_id="one", folder=job.folder, retry_failed=True, progress=job.told)
    assert done.succeeded
    assert job.told.heard("log.txt of the previous attempt were not pulled")
    there = [rundir.open_run(str(runs.parent), name) for name in ("one", "one@1")]
    assert not any(rundir.uncollected(run) for run in there), "the machine may idle"
    assert (runs / "one@1" / "work" / "kept.txt").exists()
    assert orch.down(folder=job.folder).proven_gone


def test_a_run_whose_line_in_the_ledger_was_damaged_is_taken_up_again(job: Job) -> None:
    """It goes on there; a call with its id neither ends it nor starts it a second time."""
    job.script("import time, uuid\nprint(uuid.uuid4(), flush=True)\ntime.sleep(1)\n")
    orch.up(job.profile, folder=job.folder)
    orch.train(run_id="one", detach=True, folder=job.folder)
    (ledger,) = Project(job.folder).ledgers()
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b'"run.started"', b'"run.stXrted"'))
    assert not ledger.lease().runs
    done = orch.train(run_id="one", folder=job.folder, progress=job.told)
    assert done.succeeded
    assert job.told.heard("not recorded here: following it")
    runs = job.cloud.base(job.cloud.alive()[0].id) / "runs"
    assert [path.name for path in runs.iterdir()] == ["one"]
    assert orch.down(folder=job.folder).proven_gone


def test_a_machine_that_could_not_be_made_ready_is_ended(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise orch.StackError("No space left there.", exists="It runs on.")

    monkeypatch.setattr(session.Session, "install", full)
    error = job.fails(orch.StackError, "one")
    assert job.created() == 1 and not job.cloud.alive()
    assert error.exists == "The machine was deleted; nothing costs money any more."

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session.Session, "install", pressed)
    with pytest.raises(Interrupted) as caught:
        job.run("two")
    assert job.created() == 2 and not job.cloud.alive()
    assert caught.value.exists == "The machine was deleted; nothing costs money any more."


def test_a_machine_that_cannot_be_ended_is_said_and_ended_by_the_next_call(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(job.cloud, "delete", lambda _machine: refuse())
        with pytest.raises(orch.ProviderError) as caught:
            job.run("one")
    assert caught.value.record.succeeded  # type: ignore[attr-defined]
    assert len(job.cloud.alive()) == 1
    assert job.run("one").succeeded
    assert not job.cloud.alive()


def refuse() -> None:
    raise orch.ProviderError(Fault.AUTH, "Not allowed.")


def test_results_that_do_not_come_home_keep_the_machine_and_that_is_said(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise orch.SyncError("Bytes differ.")

    with monkeypatch.context() as patch:
        patch.setattr(collect, "fetch", broken)
        error = job.fails(orch.SyncError, "one")
    assert "results of one are on it only" in (error.exists or "") and "/h" in (error.exists or "")
    assert len(job.cloud.alive()) == 1
    assert job.run("one").succeeded, "the next call brings them home"
    assert not job.cloud.alive() and job.created() == 1


# ---------------------------------------------------------------- two calls at once


def test_two_calls_with_one_id_give_one_run(job: Job) -> None:
    job.script("import time, uuid\nprint('begun', flush=True)\ntime.sleep(1)\nprint(uuid.uuid4())\n")
    with ThreadPoolExecutor(max_workers=3) as pool:
        first, *others = [pool.submit(job.run, "one") for _ in range(3)]
        records = [json.dumps(shown(each.result(100))) for each in (first, *others)]
    assert len(set(records)) == 1
    assert job.created() == 1 and not job.cloud.alive()


def test_two_calls_with_one_id_share_a_failure_too(job: Job) -> None:
    job.script("import time\nprint('begun', flush=True)\ntime.sleep(1)\nraise SystemExit(3)\n")
    with ThreadPoolExecutor(max_workers=2) as pool:
        both = [pool.submit(job.run, "one") for _ in range(2)]
        ends = [each.exception(100) for each in both]
    assert all(type(end) is orch.RunFailed for end in ends)
    assert len(job.record("one")["attempts"]) == 1
    assert not job.cloud.alive()


def test_a_second_run_beside_another_is_refused_with_what_is_free(job: Job) -> None:
    job.script(WAITS)
    running = job.begin("one")
    error = job.fails(orch.Busy, "two")
    assert "one is running" in error.message
    assert re.search(r"[\d.]+ of [\d.]+ cores, [\d.]+ of [\d.]+ GiB of memory", error.message)
    assert "another orch uses it" in (error.exists or "")
    assert not running.done()
    job.script(WRITES)
    beside = job.run("two", parallel=True)
    assert beside.succeeded and not running.done()
    orch.cancel("one", folder=job.folder)
    with pytest.raises(orch.RunCancelled):
        running.result(60)
    assert not job.cloud.alive(), "the last one ends it"


def test_a_record_of_another_version_is_read(job: Job) -> None:
    done = job.run("one")
    path = job.folder / "runs/one/run.json"
    lacking = ("command", "code", "attempts")
    old = {key: value for key, value in job.record("one").items() if key not in lacking}
    path.write_text(json.dumps({**old, "moon_phase": "full"}))
    job.script(WRITES + "# what an old record does not tell cannot be compared\n")
    read = job.run("one")
    assert (read.metrics, read.exit) == (done.metrics, done.exit)
    path.write_text(json.dumps({**old, "exit": {**old["exit"], "reason": "failed"}}))
    assert [each["reason"] for each in job.run("one").attempts] == ["failed", "completed"]
