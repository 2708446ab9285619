"""Runs that another computer of the team began: known, followed and gone on with by the store alone."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.errors import Busy, UsageError
from orchestrator.runs import follow
from orchestrator.session import team
from orchestrator.storage import open_store
from orchestrator.training import elsewhere
from tests.clouds.signing import new_bucket
from tests.e2e.project import until
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

WAITS = """
import pathlib, time
print("begun", flush=True)
while not pathlib.Path("GO").exists():
    time.sleep(0.1)
pathlib.Path("out").mkdir()
pathlib.Path("out/weights").write_text("1 2 3")
print("ended")
"""


@pytest.fixture(params=["s3"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    return new_bucket(request, monkeypatch, tmp_path)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    monkeypatch.setattr(elsewhere, "_POLL_S", 0.2)
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


class Computers:
    """Two folders of one project that have nothing in common but the bucket; `one` begins."""

    def __init__(self, root: Path, bucket: str, script: str, more: str = "") -> None:
        self.go, self.bucket = root / "go", bucket
        script = script.replace('"GO"', repr(str(self.go)))
        more = f"store: {bucket}/runs\nledger: {bucket}/team\n{more}"
        self.one, self.other = root / "one/p", root / "other/p"
        self.profiles = [here_cloud.project(each, script, more=more) for each in (self.one, self.other)]

    def run(self, folder: Path, **more: Any) -> orch.RunRecord:
        return orch.run(folder / "orch.yaml", run_id="one", folder=folder, **more)

    def begin_and_die(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`one` calls run, and is gone once the job goes on."""

        def gone(*_: Any) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(follow, "follow_to_end", gone)
            with pytest.raises(KeyboardInterrupt):
                self.run(self.one)


def test_a_success_of_another_computer_answers_the_call_with_its_results(
    bucket: str, cloud: HereCloud, tmp_path: Path
) -> None:
    two = Computers(tmp_path, bucket, WAITS)
    two.go.touch()
    first, made = two.run(two.one), len(cloud._made)
    record = two.run(two.other)
    assert not record.started and record.exit["reason"] == "completed"
    assert record.attempts == first.attempts and record.cost == first.cost
    assert (two.other / "runs/one/outputs/out/weights").read_text() == "1 2 3"
    assert (two.other / "runs/one/output.log").read_text() == "begun\nended\n"
    assert len(cloud._made) == made
    (two.other / "train.py").write_text("print(2)")
    with pytest.raises(UsageError, match="with other inputs than exist now") as caught:
        two.run(two.other)
    command = caught.value.next_command or ""
    assert command.startswith("orch run ") and "--run-id one-2" in command


def test_a_success_whose_results_no_store_has_is_not_made_again(
    bucket: str, cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Computers(tmp_path, bucket, WAITS)
    two.go.touch()
    for folder in (two.one, two.other):
        here_cloud.project(folder, "print(1)", more=f"ledger: {bucket}/team\n")
    two.run(two.one)
    made = len(cloud._made)
    monkeypatch.setattr(team, "writer", lambda: "eve@another")
    with pytest.raises(UsageError, match="on the computer of") as caught:
        two.run(two.other)
    assert caught.value.exit_code == 2 and len(cloud._made) == made


@pytest.mark.parametrize("bucket", ["s3", "gs"], indirect=True)
def test_a_run_whose_caller_is_gone_is_followed_from_another_computer(
    bucket: str, cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Computers(tmp_path, bucket, WAITS)
    two.begin_and_die(monkeypatch)
    threading.Timer(2, two.go.touch).start()
    printed: list[bytes] = []
    record = two.run(two.other, output=printed.append)
    assert record.exit["reason"] == "completed" and record.attempts[-1]["number"] == 1
    assert b"".join(printed) == b"begun\nended\n"
    assert (two.other / "runs/one/outputs/out/weights").read_text() == "1 2 3"
    assert cloud.alive() == []
    assert two.run(two.one).attempts == record.attempts


def test_watch_does_the_same_without_the_profile(
    bucket: str, cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Computers(tmp_path, bucket, WAITS)
    two.begin_and_die(monkeypatch)
    two.go.touch()
    monkeypatch.setenv("ORCH_LEDGER", f"{bucket}/team")
    two.profiles[0].unlink()
    assert orch.watch("one", folder=two.other).exit["reason"] == "completed"
    assert cloud.alive() == []


def test_both_may_follow_at_once(bucket: str, cloud: HereCloud, tmp_path: Path) -> None:
    two, records = Computers(tmp_path, bucket, WAITS), []
    first = threading.Thread(target=lambda: records.append(two.run(two.one)))
    first.start()
    until(lambda: open_store(f"{bucket}/team").head(_ledger(bucket)) is not None and _began(bucket), 60)
    threading.Timer(2, two.go.touch).start()
    records.append(two.run(two.other))
    first.join(60)
    assert [each.exit["reason"] for each in records] == ["completed"] * 2
    assert records[0].attempts == records[1].attempts
    assert cloud.alive() == []


def test_a_failure_is_tried_again_on_a_machine_of_ones_own(
    bucket: str, cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = WAITS.replace('print("ended")', 'import os, sys; sys.exit(os.environ["ORCH_ATTEMPT"] == "1")')
    two = Computers(tmp_path, bucket, script, "retry: {error: 1}\n")
    two.begin_and_die(monkeypatch)
    two.go.touch()
    record = two.run(two.other)
    assert [each["reason"] for each in record.attempts] == ["failed", "completed"]
    assert record.attempts[0]["machine"] != record.attempts[1]["machine"]
    assert cloud.alive() == []


def test_a_machine_that_was_made_for_the_run_and_never_used_is_replaced(
    bucket: str, cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Computers(tmp_path, bucket, WAITS)
    two.go.touch()

    def gone(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("orchestrator.training.one_run.one_run", gone)
        patched.setattr("orchestrator.training.managed_run._end_after", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            two.run(two.one)
    assert len(cloud.alive()) == 1
    assert two.run(two.other).exit["reason"] == "completed"
    assert cloud.alive() == []


def test_where_the_machine_puts_nothing_into_a_store_the_call_is_to_be_repeated(
    bucket: str, cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Computers(tmp_path, bucket, WAITS)
    for folder in (two.one, two.other):
        text = (folder / "orch.yaml").read_text()
        (folder / "orch.yaml").write_text(text.replace(f"store: {bucket}/runs\n", ""))
    two.begin_and_die(monkeypatch)
    with pytest.raises(Busy) as caught:
        two.run(two.other)
    assert caught.value.worth_repeating and len(cloud.alive()) == 1


def _ledger(bucket: str) -> str:
    return next((each.key for each in open_store(f"{bucket}/team").list("ledgers/")), "none")


def _began(bucket: str) -> bool:
    text = open_store(f"{bucket}/team").get(_ledger(bucket)).decode()
    return any(json.loads(line)["event"] == "run.started" for line in text.splitlines())
