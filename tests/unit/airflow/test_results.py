"""Run ids, results and failures of a task, without Airflow."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orchestrator.airflow
from orchestrator.airflow.results import failure_text, result_of
from orchestrator.airflow.run_ids import run_id_of
from orchestrator.errors import Fault, NotAccepted, Preempted, ProviderError
from orchestrator.model import RunRecord
from orchestrator.session.project import check_run_id

TASK = ("nightly", "train", "scheduled__2026-01-31T02:00:00+00:00")


def test_the_id_says_which_task_it_is_and_when() -> None:
    assert run_id_of(*TASK).startswith("nightly.train.scheduled__2026-01-31T02-00-00-00-00-")
    assert run_id_of(*TASK) == run_id_of(*TASK, -1) != run_id_of(*TASK, 0)


@given(
    st.tuples(st.text(min_size=1, max_size=250), st.text(min_size=1), st.text(min_size=1)), st.integers(-1)
)
def test_every_task_has_an_id_that_a_run_can_have(names: tuple[str, str, str], index: int) -> None:
    assert check_run_id(run_id_of(*names, index)) == run_id_of(*names, index)


def test_names_that_become_the_same_text_keep_different_ids() -> None:
    ids = {run_id_of("a", "b", when) for when in ("2026 1", "2026:1", "2026-1", "x" * 300, "x" * 301)}
    assert len(ids) == 5


def test_the_result_is_json_that_any_database_stores(tmp_path: Path) -> None:
    record = RunRecord(
        "one",
        str(tmp_path),
        {"code": 0, "signal": None, "reason": "completed", "detail": ""},  # type: ignore[typeddict-item]
        parity={"verdict": "identical", "stages": []},
        metrics={"loss": float("nan"), "accuracy": 0.5, "by_class": [1, float("inf")]},
        cost={"usd": 0.25},  # type: ignore[typeddict-item]
        acceptance={"accepted": True},
    )
    value = result_of(record)
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    assert value["metrics"] == {"loss": "nan", "accuracy": 0.5, "by_class": [1, "inf"]}
    known = {"run_id", "reason", "verdict", "accepted", "cost_usd", "folder", "attempts"}
    assert {name: value[name] for name in known} == {
        "run_id": "one", "reason": "completed", "verdict": "identical", "accepted": True,
        "cost_usd": 0.25, "folder": str(tmp_path), "attempts": 0,
    }  # fmt: skip


def test_a_failure_says_what_exists_what_to_do_and_whether_a_retry_helps() -> None:
    error = Preempted("The machine was taken back.", exists="Nothing costs money.", next_command="orch run …")
    assert failure_text(error).splitlines() == [
        "The machine was taken back.",
        "Nothing costs money.",
        "Next: orch run …",
        "Exit code 11. A retry may succeed. More: orch explain preempted",
    ]
    refused = (NotAccepted("It is worse."), ProviderError(Fault.QUOTA, "No quota."))
    assert all("A retry would fail again: not retried." in failure_text(each) for each in refused)


@pytest.mark.skipif(importlib.util.find_spec("airflow") is not None, reason="Airflow is installed here")
def test_without_airflow_the_operator_says_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"pip install 'orch-train\[airflow\]'"):
        _ = orchestrator.airflow.OrchRunOperator
    with pytest.raises(AttributeError):
        _ = orchestrator.airflow.NoSuchName
