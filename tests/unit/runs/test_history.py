"""`orch runs`: from records and ledgers to a list that people and scripts read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.api import history
from orchestrator.cli.app import app
from orchestrator.errors import UsageError
from orchestrator.ledger import Ledger
from orchestrator.model import RunRecord
from orchestrator.model.history import History, PastRun, Where
from orchestrator.report.history import COLUMNS, history_text
from orchestrator.runs import record_file
from orchestrator.session.project import Project
from tests.unit.memory_cloud import opened_lease

BEGUN = 1_790_000_000.0
FAR = 4e9


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def recorded(root: Path, run_id: str, at: float = BEGUN, **facts: Any) -> Path:
    """A record that was written at `at`."""
    folder = root / "runs" / run_id
    folder.mkdir(parents=True)
    ended = {"reason": "completed", "code": 0, "detail": "It ended."}
    record_file.write(RunRecord(run_id, str(folder), **{"exit": ended, **facts}))
    os.utime(folder / record_file.RECORD, (at, at))
    return folder


def leased(root: Path, lease: str = "digits-0a1b2c", deadline: float = BEGUN + 3600) -> Ledger:
    ledger = opened_lease(Project(root), lease)
    ledger.append(
        "create.accepted",
        attempt=0,
        machine={"id": "i-1", "provider": "memory", "instance_type": "m-1"},
        created_at=BEGUN,
        deadline=deadline,
        price=1.0,
    )
    return ledger


def started(ledger: Ledger, run_id: str, number: int = 1) -> None:
    draft = {"stack": None, "data": None, "parity": {"verdict": "IDENTICAL"}, "timings": {}}
    ledger.append(
        "run.started", run_id=run_id, draft={**draft, "attempt": {"number": number, "changed": [], **RETRIED}}
    )


RETRIED = {"retried": {"interruption": 0, "error": 0}}


def one(root: Path, run_id: str) -> PastRun:
    (found,) = (each for each in history(folder=root).runs if each.run_id == run_id)
    return found


def test_a_record_tells_its_verdicts_metrics_and_cost(tmp_path: Path) -> None:
    attempts = [
        {"number": 1, "started_at": BEGUN, "ended_at": BEGUN + 60, "reason": "preempted", "usd": 0.5},
        {"number": 2, "started_at": BEGUN + 90, "ended_at": BEGUN + 190, "reason": "completed", "usd": 0.25},
    ]
    check = {"files": [{"loaded": True, "equal": True}, {"loaded": False}, {"not_checked": "no reader"}]}
    recorded(
        tmp_path,
        "nightly",
        attempts=attempts,
        model_check=check,
        parity={"verdict": "IDENTICAL"},
        metrics={"accuracy": 0.97, "nothing": float("nan"), "name": "text"},
        machine={"name": "orch-digits-0a1b2c", "id": "i-1"},
    )
    found = one(tmp_path, "nightly")
    assert (found.profile, found.reason, found.parity) == ("digits", "completed", "IDENTICAL")
    assert (found.attempts, found.usd, found.started_at, found.ended_at) == (2, 0.75, BEGUN, BEGUN + 190)
    assert found.models
    assert (found.models.same, found.models.wrong, found.models.not_checked) == (1, 1, 1)
    assert found.metrics == {"accuracy": 0.97}
    assert (found.where, found.place) == (Where.HERE, str(tmp_path / "runs/nightly"))


def _collected(ledger: Ledger) -> None:
    ledger.append("run.ended", run_id="one", reason="completed")
    ran = {"run_id": "one", "attempt": 1, "machine": "i-1", "begun": BEGUN, "ended": BEGUN + 60, "usd": 0.1}
    ledger.append("run.collected", run_id="one", ran=ran)


def _discarded(ledger: Ledger) -> None:
    ledger.append("run.ended", run_id="one", reason="completed")
    ledger.append("machine.ended", machine="i-1", at=BEGUN + 60)
    ledger.append("lease.closed")


def _pulled_from_its_store(ledger: Ledger) -> None:
    _discarded(ledger)
    ledger.append("run.collected", run_id="one")


def _lost(ledger: Ledger) -> None:
    ledger.append("run.lost", run_id="one", reason="lost", detail="It went away.")


@pytest.mark.parametrize(
    ("then", "reason", "where", "usd"),
    [
        (lambda _: None, None, Where.MACHINE, None),
        (_collected, "completed", Where.REMOVED, 0.1),
        (_lost, "lost", Where.LOST, None),
        (_discarded, "completed", Where.DISCARDED, None),
        (_pulled_from_its_store, "completed", Where.REMOVED, None),
    ],
)
def test_the_ledger_tells_of_a_run_without_a_record(
    tmp_path: Path, then: Callable[[Ledger], None], reason: str | None, where: Where, usd: float | None
) -> None:
    ledger = leased(tmp_path)
    started(ledger, "one")
    then(ledger)
    found = one(tmp_path, "one")
    assert (found.reason, found.where, found.usd, found.parity) == (reason, where, usd, "IDENTICAL")
    assert (found.lease, found.profile, found.machine) == ("digits-0a1b2c", "digits-0a1b2c", "i-1")


def test_results_that_were_discarded_are_on_no_machine(tmp_path: Path) -> None:
    ledger = leased(tmp_path)
    started(ledger, "one")
    _discarded(ledger)
    found = one(tmp_path, "one")
    assert (found.place, found.detail) == ("i-1", "Its results were discarded with i-1.")
    text = history_text(history(folder=tmp_path), "orch up")
    assert "discarded" in text and "results discarded with i-1" in text and "on i-1" not in text
    page = CliRunner().invoke(app, ["report", "one", "--format", "md"]).stdout
    assert "Its results were discarded with i-1." in page and "orch pull" not in page
    page = CliRunner().invoke(app, ["report", "digits-0a1b2c", "--format", "md"]).stdout
    assert "discarded with its machine" in page and "on the machine" not in page


def test_a_new_attempt_counts_before_the_record_of_the_old_one(tmp_path: Path) -> None:
    recorded(tmp_path, "one", attempts=[{"number": 1, "reason": "failed"}], exit={"reason": "failed"})
    ledger = leased(tmp_path)
    started(ledger, "one", number=1)
    assert one(tmp_path, "one").reason == "failed"
    started(ledger, "one", number=2)
    found = one(tmp_path, "one")
    assert (found.reason, found.attempts, found.where) == (None, 2, Where.MACHINE)


@pytest.mark.parametrize(
    ("deadline", "then", "word"),
    [
        (FAR, lambda _: None, "running"),
        (BEGUN + 3600, lambda _: None, "not seen"),  # its machine has ended since
        (FAR, lambda it: it.append("run.ended", run_id="one", reason="failed"), "failed"),
        (FAR, lambda it: it.append("machine.ended", machine="i-1", at=BEGUN + 9), "not seen"),
        (FAR, lambda it: it.append("lease.closed"), "not seen"),
    ],
)
def test_a_run_is_running_until_its_end_or_that_of_its_machine_was_seen(
    tmp_path: Path, deadline: float, then: Callable[[Ledger], None], word: str
) -> None:
    ledger = leased(tmp_path, deadline=deadline)
    started(ledger, "one")
    then(ledger)
    found = history(folder=tmp_path)
    assert found.runs[0].active == (word == "running")
    assert f"  {word}  " in history_text(found, "orch up")


def test_a_damaged_record_is_passed_over_and_named(tmp_path: Path) -> None:
    recorded(tmp_path, "sound")
    for name, content in (("cut", b'{"schema": "orch.ru'), ("later", b'{"schema": "orch.run/99"}')):
        recorded(tmp_path, name)
        (tmp_path / "runs" / name / record_file.RECORD).write_bytes(content)
    found = history(folder=tmp_path)
    assert [each.run_id for each in found.runs] == ["sound"]
    assert {Path(each.place).parent.name for each in found.damaged} == {"cut", "later"}
    assert str(tmp_path / "runs/cut") in history_text(found, "orch up")


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    ledger = leased(tmp_path)
    started(ledger, "one")
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b"run.started", b"run.\xff\xff"))
    (told,) = history(folder=tmp_path).damaged
    assert told.place == str(ledger.path)


def test_only_the_records_of_listed_runs_are_read(tmp_path: Path) -> None:
    """Those that are not listed are folders of nonsense here: reading one would name it."""
    (tmp_path / "runs").mkdir()
    for number in range(300):
        folder = tmp_path / f"runs/r{number}"
        folder.mkdir()
        (folder / record_file.RECORD).write_bytes(b"nonsense")
        os.utime(folder / record_file.RECORD, (number, number))
    for number in range(3):
        recorded(tmp_path, f"new-{number}", BEGUN + number)
    found = history(folder=tmp_path, last=2)
    assert [each.run_id for each in found.runs] == ["new-2", "new-1"]
    assert found.more
    assert not found.damaged


def test_runs_of_one_profile(tmp_path: Path) -> None:
    recorded(tmp_path, "digits-20261123-192423-ab12")
    recorded(tmp_path, "named-digits", machine={"name": "orch-digits-0a1b2c"})
    recorded(tmp_path, "images-20261123-192423-ab12")
    names = {each.run_id for each in history("digits", folder=tmp_path).runs}
    assert names == {"digits-20261123-192423-ab12", "named-digits"}
    with pytest.raises(UsageError, match="images"):
        history("imagse", folder=tmp_path)


@pytest.mark.parametrize("name", ["with space", ".hidden", "part\nline", "\x1b[2J"])
def test_what_else_lies_in_runs_is_no_run(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "runs" / name
    folder.mkdir(parents=True)
    (folder / record_file.RECORD).write_text("{}")
    (tmp_path / "runs" / "file").write_text("x")
    assert history(folder=tmp_path) == history(folder=tmp_path / "nowhere")


def test_the_table_fits_and_keeps_ids_whole() -> None:
    runs = [
        PastRun(
            "x" * 100, "digits", Where.ELSEWHERE, "somebody-of-the-team@workstation.example", attempts=12
        ),
        PastRun(
            "digits-20261123-192423-ab12",
            "digits",
            Where.MACHINE,
            "i-0123456789abcdef012",
            owner="somebody-of-the-team@workstation.example",
            started_at=BEGUN,
            reason="device_out_of_memory",
            parity="NOT COMPARED",
            metrics={"a metric\nof two lines \x1b[31m and a very long name": 1e-300, "b": 123456789.0},
            usd=1234.5,
        ),
    ]
    lines = history_text(History(runs), "orch up").splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert "x" * 100 in lines
    assert any(line.startswith("digits-20261123-192423-ab12 ") for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_the_verb(tmp_path: Path) -> None:
    called = CliRunner().invoke(app, ["runs"])
    assert (called.exit_code, "orch up" in called.output) == (0, True)
    recorded(tmp_path, "one", metrics={"loss": 0.5})
    value = json.loads(CliRunner().invoke(app, ["runs", "--json"]).output)
    assert value["schema"] == "orch.runs/1"
    assert [(run["run_id"], run["where"], run["metrics"]) for run in value["runs"]] == [
        ("one", "here", {"loss": 0.5})
    ]
    assert (value["damaged"], value["more"], value["ledger"]) == ([], False, "")
    assert CliRunner().invoke(app, ["runs", "other"]).exit_code == 2
