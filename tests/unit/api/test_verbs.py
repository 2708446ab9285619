"""pull, cancel, logs and repeated calls: runs that ended, that wait, or that nobody knows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import orchestrator as orch
from orchestrator.api import logs, pulling
from orchestrator.api.schemas import schema as orch_schema
from orchestrator.cli import main
from orchestrator.model import CancelReport, RunRecord
from orchestrator.report.run import cancel_text
from orchestrator.runs import collect, record_file
from orchestrator.runs.bookmarks import bookmark_of
from orchestrator.session import work_locks
from orchestrator.session.project import Project
from tests.said import Said
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

WRITES = "open('result.txt', 'w').write('x')\nprint('begun', flush=True)\n"
WAITS = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"


@dataclass
class Job:
    folder: Path
    cloud: HereCloud
    told: Said = field(default_factory=Said)

    @property
    def profile(self) -> Path:
        return self.folder / "orch.yaml"

    def start(self, run_id: str, script: str = WRITES, **wishes: Any) -> None:
        """Start a run, and let go of it."""
        (self.folder / "train.py").write_text(script)
        orch.train(run_id=run_id, detach=True, parallel=True, folder=self.folder, **wishes)

    def ended(self, *ids: str) -> None:
        """Runs that have ended, and were not fetched."""
        for run_id in ids:
            self.start(run_id)
            logs.logs(run_id, follow=True, folder=self.folder, output=lambda _data: None)

    def cli(self, monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
        monkeypatch.chdir(self.folder)
        monkeypatch.setattr(sys, "argv", ["orch", *argv])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    made = Job(tmp_path / "p", here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True))
    here_cloud.project(made.folder, WRITES)
    yield made
    for machine in made.cloud.alive():
        made.cloud.kill(machine)


# ---------------------------------------------------------------- pull


def test_pull_names_the_older_runs_that_wait_and_all_fetches_them(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orch.up(job.profile, folder=job.folder)
    job.ended("a", "b", "c")
    job.start("going", WAITS)
    capsys.readouterr()

    assert job.cli(monkeypatch, "pull", "--json") == 0
    said = capsys.readouterr()
    value = json.loads(said.out)
    assert (value["run_id"], value["unfetched"], value["running"]) == ("c", ["a", "b"], ["going"])
    jsonschema.Draft202012Validator(orch_schema("run")).validate(value)
    assert "Also ended and not pulled yet: a, b. Next: orch pull --all" in said.err
    assert not (job.folder / "runs/a/run.json").exists()

    with pytest.raises(orch.UsageError) as kept:
        orch.down(folder=job.folder)
    assert (kept.value.next_command or "").startswith("orch pull --all ")
    assert job.cli(monkeypatch, "pull", "--all", "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert [run["run_id"] for run in value["runs"]] == ["a", "b"]
    assert (value["schema"], value["running"]) == ("orch.pull/1", ["going"])
    assert (job.folder / "runs/a/outputs/result.txt").read_text() == "x"

    assert job.cli(monkeypatch, "pull", "--all") == 0
    assert "All ended runs have been pulled. Still running: going. Next: orch logs -f going" in (
        capsys.readouterr().out
    )
    assert job.cli(monkeypatch, "pull", "--all", "a") == 2
    orch.cancel("going", folder=job.folder)
    assert [record.run_id for record in orch.pull_all(folder=job.folder).records] == ["going"]


def test_a_result_of_one_run_that_stays_keeps_no_other_back(job: Job) -> None:
    orch.up(job.profile, folder=job.folder)
    job.start("a", "open('x', 'w').write('1')\n")
    logs.logs("a", follow=True, folder=job.folder, output=lambda _data: None)
    job.ended("b")
    (machine,) = job.cloud.alive()
    (job.cloud.base(machine.id) / "runs" / "a" / "work" / "x").write_text("changed after its end")
    with pytest.raises(orch.ResultsLost, match="a: 1 of its results"):
        orch.pull_all(folder=job.folder)
    assert (job.folder / "runs/b/outputs/result.txt").exists()


# ---------------------------------------------------------------- a call that starts nothing


def test_a_repeated_run_says_that_nothing_was_started(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("run", "orch.yaml", "--run-id", "one")
    assert job.cli(monkeypatch, *argv, "--yes", "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert first["started"] is True
    assert "started" not in json.loads((job.folder / "runs/one/run.json").read_text())

    assert job.cli(monkeypatch, *argv, "--json") == 0
    said = capsys.readouterr()
    value = json.loads(said.out)
    assert value == {**first, "started": False}
    jsonschema.Draft202012Validator(orch_schema("run")).validate(value)
    assert "Nothing was started or rented." in said.err
    assert len(job.cloud._made) == 1


def test_pull_without_an_id_shows_no_old_run_while_another_goes_on(job: Job) -> None:
    """What was fetched before is no news; what has ended and waits is, whichever run began last."""
    orch.up(job.profile, folder=job.folder)
    job.ended("old")
    orch.pull(folder=job.folder)
    job.start("long", WAITS)
    with pytest.raises(orch.Busy, match=r"long is still running. All other ended runs") as refused:
        orch.pull(folder=job.folder)
    assert refused.value.exit_code == 15
    assert refused.value.next_command == "orch logs -f long    # old was fetched before: orch pull old"
    job.ended("short")
    assert orch.pull(folder=job.folder).run_id == "short"
    orch.cancel("long", folder=job.folder)
    assert orch.pull(folder=job.folder).run_id == "long"
    assert orch.pull(folder=job.folder, progress=job.told).run_id in ("short", "long")
    shown = "was fetched before, and is shown again; to fetch it anew: orch pull "
    assert any(shown in words for words in job.told.lines)
    assert not any("listed anew" in words for words in job.told.lines)


def test_what_is_in_the_way_is_no_bad_input(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script tells by the exit code whether to wait or to correct its call."""
    orch.up(job.profile, folder=job.folder)
    job.start("one", WAITS)
    for words in (["train", "--run-id", "two"], ["down"], ["pull"], ["pull", "one"]):
        assert job.cli(monkeypatch, *words) == 15, words
    assert job.cli(monkeypatch, "down", "--all", "--yes", "--cloud", "memory") == 15
    orch.cancel("one", folder=job.folder)
    assert job.cli(monkeypatch, "down") == 15, "its results wait"
    assert job.cli(monkeypatch, "pull", "no-such") == 2
    assert job.cli(monkeypatch, "down", "no-such") == 2


def test_a_repeated_failure_says_that_nothing_was_started(job: Job) -> None:
    (job.folder / "train.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(orch.RunFailed):
        orch.run(job.profile, run_id="one", folder=job.folder)
    with pytest.raises(orch.RunFailed) as again:
        orch.run(job.profile, run_id="one", folder=job.folder, retry_failed=False)
    assert "nothing was started now" in (again.value.exists or "")
    assert "machine runs on" not in (again.value.exists or ""), "there is none"
    assert "--retry-failed" in (again.value.next_command or "")


# ---------------------------------------------------------------- cancel


def test_cancel_of_what_ended_says_how_and_when(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orch.up(job.profile, folder=job.folder)
    job.ended("one")
    capsys.readouterr()
    assert job.cli(monkeypatch, "cancel", "one", "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["cancelled"], value["reason"], value["code"]) == (False, "completed", 0)
    assert abs(value["ended_at"] - time.time()) < 600
    assert job.cli(monkeypatch, "cancel", "one") == 0
    said = capsys.readouterr().out
    assert "one had already ended on 2" in said and "completed" in said
    assert "Nothing was cancelled.\nNext: orch pull one" in said

    orch.pull("one", folder=job.folder)
    orch.down(folder=job.folder)
    report = orch.cancel("one", folder=job.folder)
    assert not report.cancelled and report.fetched
    assert report.ended_at == pytest.approx(value["ended_at"], abs=600)


def test_cancel_without_an_id_ends_the_run_that_goes_on(job: Job) -> None:
    orch.up(job.profile, folder=job.folder)
    job.start("old", WAITS)
    job.ended("new")
    orch.pull("new", folder=job.folder)
    report = orch.cancel(folder=job.folder)
    assert (report.run_id, report.cancelled, report.reason) == ("old", True, "cancelled")
    assert not orch.cancel("old", folder=job.folder).cancelled


def test_cancel_of_a_run_that_went_with_its_machine(job: Job) -> None:
    orch.up(job.profile, folder=job.folder)
    job.start("one", WAITS)
    job.cloud.kill(job.cloud.alive()[0])
    for _ in range(2):  # the first call settles the run, the second one finds it settled
        with pytest.raises(orch.RunLost) as lost:
            orch.cancel("one", folder=job.folder)
        assert "Nothing was cancelled." in f"{lost.value.message} {lost.value.exists}"


@pytest.mark.parametrize("verb", ["cancel", "pull", "logs"])
@pytest.mark.parametrize("leased", [True, False])
def test_an_unknown_id_is_answered_with_the_nearest(job: Job, verb: str, leased: bool) -> None:
    if leased:
        orch.up(job.profile, folder=job.folder)
        job.ended("nightly-41")
    else:
        orch.run(job.profile, run_id="nightly-41", folder=job.folder)
        if verb == "pull":
            pytest.skip("without a machine there is nothing to pull")
    options: dict[str, Any] = {"output": print} if verb == "logs" else {}
    act: Any = {"cancel": orch.cancel, "pull": orch.pull, "logs": logs.logs}[verb]
    with pytest.raises(orch.UsageError, match="Similar ids: nightly-41"):
        act("nightly-14", folder=job.folder, **options)


def test_cancel_of_a_run_that_is_being_started_names_the_call(job: Job) -> None:
    project = Project.at(job.folder)
    orch.up(job.profile, folder=job.folder)
    with work_locks.run_lock(project, "one", "train", job.told):
        with pytest.raises(orch.UsageError) as refused:
            orch.cancel("one", folder=job.folder)
        assert f"is being started by `orch train` (process {os.getpid()}, since" in refused.value.message
        assert "Nothing was cancelled." in refused.value.message
        assert f"kill -INT {os.getpid()}" in (refused.value.next_command or "")
    with pytest.raises(orch.UsageError, match="There is no run one"):
        orch.cancel("one", folder=job.folder)


def test_cancel_text_without_a_time() -> None:
    text = cancel_text(CancelReport("one", False, "completed", fetched=True))
    assert text.startswith("one had already ended: completed. Nothing was cancelled.")


# ---------------------------------------------------------------- who waits for whom


HOLDS = """
import sys, time
from orchestrator.session import work_locks
from orchestrator.session.project import Project
from orchestrator.model import Silent
with work_locks.run_lock(Project.at({folder!r}), "one", "train", Silent()):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_waiting_call_says_once_who_holds_the_lock_and_when_it_continues(tmp_path: Path) -> None:
    """The holder's words come from its own process."""
    project = Project.at(tmp_path)
    program = [sys.executable, "-c", HOLDS.format(folder=str(tmp_path))]
    holder = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin and holder.stdout
    assert holder.stdout.readline() == "held\n"

    class Release(Said):
        """Lets the holder go as soon as something is said of it."""

        def say(self, text: str) -> None:
            super().say(text)
            if holder.poll() is None and len(self.lines) == 1:
                holder.communicate("\n")

    told = Release()
    seen = work_locks.working_on(project, "one")
    assert seen and (seen.pid, seen.verb) == (holder.pid, "train")
    with work_locks.run_lock(project, "one", "pull", told):
        first, second = told.lines
        assert first == f"{seen.words} works on one in this folder; waiting for it"
        assert second == "The lock is free now; continuing"
        mine = work_locks.working_on(project, "one")
        assert mine and (mine.pid, mine.verb) == (os.getpid(), "pull")
    assert work_locks.working_on(project, "one") is None


def test_a_turn_that_was_given_back_says_nothing_of_its_next_holder(tmp_path: Path) -> None:
    project = Project.at(tmp_path)
    with work_locks.run_lock(project, "one", "train", Said()) as lock:
        lock.release()
        with work_locks.run_lock(project, "one", "pull", Said()):
            lock.release()
            holder = work_locks.working_on(project, "one")
            assert holder and holder.verb == "pull"


def test_those_who_only_wait_for_up_do_not_wait_for_each_other(tmp_path: Path) -> None:
    place, told = Project.at(tmp_path), Said()
    with work_locks.one_at_a_time(place, "tiny", "up", told):
        pass
    work_locks.after_up(place, "tiny", told)
    work_locks.after_up(place, "tiny", told)
    assert told.lines == []


# ---------------------------------------------------------------- logs


def pulled(folder: Path, run_id: str, log: bytes) -> Path:
    here = folder / "runs" / run_id
    here.mkdir(parents=True)
    (here / collect.LOG).write_bytes(log)
    record_file.write(RunRecord(run_id, str(here), {"code": 0, "signal": None, "reason": "completed"}))
    return here


def test_a_pulled_log_is_passed_on_in_bounded_blocks(tmp_path: Path) -> None:
    log = b"".join(b"line %d\n" % number for number in range(200_000))
    pulled(tmp_path, "one", log)
    for follow in (False, True):
        blocks: list[bytes] = []
        told = logs.logs("one", folder=tmp_path, output=blocks.append, follow=follow)
        assert b"".join(blocks) == log
        assert max(map(len, blocks)) <= 1 << 18
        assert (told["run_id"], told["bytes"], told["reason"]) == ("one", len(log), "completed")
        assert (told["ended"], told["next_command"]) == (True, None)


def test_a_follower_of_a_pulled_log_goes_on_where_it_left_off(job: Job) -> None:
    orch.up(job.profile, folder=job.folder)
    job.start("one", "print('first'); print('second')\n")
    job.ended("two")
    orch.pull_all(folder=job.folder)
    orch.down(folder=job.folder)
    project = Project.at(job.folder)
    mark = bookmark_of(project.ledger(project.leases()[0].id), "one")
    mark.advance(len(b"first\n"))
    mark.save()
    shown: list[bytes] = []
    for _ in range(2):
        logs.logs("one", follow=True, folder=job.folder, output=shown.append)
    assert b"".join(shown) == b"second\n"


def test_memory_does_not_grow_with_a_log(tmp_path: Path) -> None:
    """A sparse log of 1 GiB passes through a process that may have half of that."""
    here = pulled(tmp_path, "one", b"")
    with open(here / collect.LOG, "wb") as file:
        file.truncate(1 << 30)
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29));"
        "from orchestrator.api.logs import logs; seen = [0];"
        "add = lambda data: seen.__setitem__(0, seen[0] + len(data));"
        f"logs('one', folder={str(tmp_path)!r}, output=add); print(seen[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == str(1 << 30), done.stderr


def test_fetch_is_what_pull_returns(job: Job) -> None:
    orch.up(job.profile, folder=job.folder)
    job.ended("a", "b")
    report = pulling.fetch(folder=job.folder, progress=job.told)
    assert [record.run_id for record in report.records] == ["b"] and report.unfetched == ("a",)
    assert any("orch pull a" in words for words in job.told.lines)
