"""Every way in which a run ends has an exit code of its own, as the errors' docstring draws it."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator import api, errors
from orchestrator.cli.app import app
from orchestrator.errors import Interrupted, OrchError, ProviderError, RunFailed
from orchestrator.leases.settle import settle
from orchestrator.model import Ending, Exit, ExitReason, RunRecord
from orchestrator.model.outcomes import failure_of
from orchestrator.report.run import summary
from orchestrator.runs import collect
from orchestrator.runs.outcome import raise_for_outcome
from orchestrator.session.project import Project

REASONS = [
    ("failed", 6),
    ("signal", 6),
    ("out_of_memory", 10),
    ("device_out_of_memory", 10),
    ("preempted", 11),
    ("lost", 12),
    ("cancelled", 13),
    ("results_lost", 14),
    ("data_failed", 6),
    ("stalled", 16),
    ("not_finite", 17),
    ("disk_full", 18),
    ("deadline", 19),
]
RETRIED = {"preempted", "lost", "results_lost", "stalled"}


@pytest.mark.parametrize(("reason", "code"), REASONS)
def test_the_reason_of_a_run_s_end_is_the_exit_code(tmp_path: Path, reason: str, code: int) -> None:
    ended = {"code": None, "signal": None, "reason": reason, "detail": "So."}
    record = RunRecord("one", str(tmp_path), ended)
    with pytest.raises(failure_of(reason)) as caught:
        raise_for_outcome(record, "p.yaml")
    assert caught.value.exit_code == code
    assert isinstance(caught.value, RunFailed)
    assert caught.value.record is record
    exit_ = collect.exit_json(Exit(None, None, ExitReason(reason)))
    assert caught.value.worth_repeating == exit_["retry"] == (reason in RETRIED)


def test_the_table_for_schedulers_has_every_exit_code_and_what_to_do() -> None:
    page = (Path(errors.__file__).parents[1] / "docs/failures.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \|[^|]*\| (retry|alert|-|as it says)[ |:]", page, re.M))
    codes = {name: value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert {int(code) for code in rows} == {*codes.values(), 1}
    for kind in vars(errors).values():
        if not (inspect.isclass(kind) and issubclass(kind, OrchError)):
            continue
        if not isinstance(kind.exit_code, int):  # it depends on the fault
            continue
        said = rows[str(kind.exit_code)]
        error = kind.__new__(kind)
        assert said == "as it says" or (said == "retry") == error.worth_repeating, kind


def test_every_reason_of_the_schema_that_is_a_failure_has_a_code() -> None:
    path = Path(errors.__file__).parent / "report/run.schema.json"
    known = set(json.loads(path.read_text())["properties"]["exit"]["properties"]["reason"]["enum"])
    assert known - {"completed", "running", "not_started", "observed"} == {reason for reason, _ in REASONS}


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = dict(re.findall(r"─ (\w+)\S*\s+(\d+)\s", errors.__doc__ or ""))
    classes = {
        name: kind
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, OrchError) and kind not in (OrchError, ProviderError)
    }
    assert {name: str(kind.exit_code) for name, kind in classes.items()} == {
        name: code for name, code in drawn.items() if name != "ProviderError"
    }


PROFILE = {"name": "tiny", "cloud": "memory", "path": "p.yaml", "overrides": [], "digest": "d"}
DRAFT = {"stack": {"digest": "s", "differences": []}, "data": None, "parity": None, "timings": {}}
GONE = Ending("It was stopped.")
TAKEN = Ending("The cloud took it back.", preempted=True)


@pytest.mark.parametrize(
    ("ended", "ending", "expected"),
    [
        (None, None, "lost"),
        (None, GONE, "lost"),
        (None, TAKEN, "preempted"),
        ("preempted", None, "preempted"),
        ("completed", GONE, "results_lost"),
        ("completed", TAKEN, "results_lost"),
        ("failed", None, "results_lost"),
    ],
)
def test_what_a_gone_machine_means_for_its_run(
    tmp_path: Path, ended: str | None, ending: Ending | None, expected: str
) -> None:
    project = Project(tmp_path)
    ledger = project.ledger("tiny-1")
    ledger.append("lease.opened", lease="tiny-1", profile=PROFILE)
    ledger.append("run.started", run_id="home", draft=DRAFT)
    ledger.append("run.collected", run_id="home")
    ledger.append("run.started", run_id="one", draft=DRAFT)
    if ended:
        ledger.append("run.ended", run_id="one", reason=ended)
    (record,) = settle(project, ledger, ending)
    assert record.exit["reason"] == expected
    assert (ending.message if ending else "machine is gone") in record.exit["detail"]
    assert json.loads((tmp_path / "runs/one/run.json").read_text())["exit"] == record.exit
    run = ledger.lease().runs["one"]
    assert (run.exit_reason, run.lost) == (expected, record.exit["detail"])
    assert settle(project, ledger, ending) == (), "once"


def test_a_run_that_lacked_memory_names_what_it_used_and_what_measures_it(tmp_path: Path) -> None:
    ended = {"code": None, "signal": 9, "reason": "out_of_memory", "detail": "Memory was used up."}
    seen = {"peak_memory": 3 << 30, "memory": 4 << 30}
    record = RunRecord("one", str(tmp_path), ended, profile=seen, timings={"pull_s": 1.0})
    with pytest.raises(failure_of("out_of_memory")) as caught:
        raise_for_outcome(record, "p.yaml")
    assert "reached 3.0 GiB of 4.0 GiB" in caught.value.message
    said = str(caught.value.next_command)
    assert said.startswith("orch size p.yaml --write") and "resources.memory" in said
    screen = summary(record)
    assert "3.0 GiB of 4.0 GiB" in screen and "orch size" in screen


def test_a_run_whose_gpu_lacked_memory_names_what_measures_it(tmp_path: Path) -> None:
    ended = {"code": 1, "signal": None, "reason": "device_out_of_memory", "detail": "No memory left."}
    seen = {"peak_memory": 3 << 30, "memory": 4 << 30}
    record = RunRecord("one", str(tmp_path), ended, profile=seen, timings={"pull_s": 1.0})
    with pytest.raises(failure_of("device_out_of_memory")) as caught:
        raise_for_outcome(record, "p.yaml")
    said = str(caught.value.next_command)
    assert said.startswith("orch size p.yaml --write") and "resources.accelerator.memory" in said
    assert "GiB" not in caught.value.message, "the memory of the machine was not what it lacked"
    assert "sets resources.accelerator.memory" in summary(record)
    with pytest.raises(failure_of("out_of_memory")):
        raise_for_outcome(RunRecord("one", str(tmp_path), ended), "p.yaml")
    assert "orch size" in summary(RunRecord("one", str(tmp_path), ended)), "without samples, too"


def test_an_interrupted_run_tells_what_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> Any:
        raise Interrupted("m-1 could not be deleted: it costs $0.38/h.", "orch watch one")

    monkeypatch.setattr(api, "run", stopped)
    done = CliRunner().invoke(app, ["run", str(tmp_path / "orch.yaml"), "--run-id", "one"])
    assert done.exit_code == 130
    assert "m-1 could not be deleted: it costs $0.38/h.\nNext: orch watch one\n" in done.stderr
