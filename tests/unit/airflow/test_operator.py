"""Which of Airflow's errors a failure becomes, and when the task defers, with stand-ins for its base classes.

tests/e2e/test_airflow.py has the same in a real Airflow.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from orchestrator.errors import Fault, NotAccepted, OrchError, Preempted, ProviderError, UsageError
from orchestrator.model import RunRecord


class AirflowException(Exception):
    """The try failed."""


class AirflowFailException(AirflowException):
    """The task failed, whatever its retries."""


class Deferred(BaseException):
    """The task waits for `trigger`."""

    def __init__(self, trigger: Any, method_name: str) -> None:
        self.trigger, self.method_name = trigger, method_name


class Base:
    """A stand-in for an operator and for a trigger."""

    log = logging.getLogger("task")

    def __init__(self, **_: Any) -> None:
        pass

    def defer(self, *, trigger: Any, method_name: str) -> None:
        raise Deferred(trigger, method_name)


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the operator, on stand-ins."""
    names: dict[str, dict[str, Any]] = {
        "airflow": {},
        "airflow.sdk": {"BaseOperator": Base, "Context": dict},
        "airflow.sdk.exceptions": {
            "AirflowException": AirflowException,
            "AirflowFailException": AirflowFailException,
        },
        "airflow.triggers": {},
        "airflow.triggers.base": {"BaseTrigger": Base, "TriggerEvent": dict},
    }
    for name, values in names.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    import orchestrator.airflow.operator as made

    yield made
    for name in ("operator", "trigger"):
        sys.modules.pop(f"orchestrator.airflow.{name}", None)


CONTEXT = {"ti": SimpleNamespace(dag_id="d", task_id="t", run_id="scheduled__2026-01-31", map_index=-1)}


def record(folder: Path, reason: str) -> RunRecord:
    exit_: Any = {"code": 0, "signal": None, "reason": reason, "detail": ""}
    return RunRecord("one", str(folder), exit_)


def task(operator: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, ends: Any, **wishes: Any) -> Any:
    """An operator whose `run` returns or raises `ends`; `calls` are its arguments."""
    made = operator.OrchRunOperator(profile=str(folder / "orch.yaml"), **wishes)
    made.calls = []

    def run(profile: Path, **given: Any) -> RunRecord:
        made.calls.append({"profile": profile, **given})
        if isinstance(ends, BaseException):
            raise ends
        return record(folder, ends)

    monkeypatch.setattr(operator, "run", run)
    return made


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (Preempted("It was taken back."), True),
        (ProviderError(Fault.CAPACITY, "No capacity."), True),
        (ProviderError(Fault.QUOTA, "No quota."), False),
        (NotAccepted("It is worse."), False),
        (UsageError("Other code."), False),
    ],
)
def test_only_what_a_retry_may_solve_is_retried(
    error: OrchError, retried: bool, operator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = task(operator, tmp_path, monkeypatch, error)
    with pytest.raises(AirflowException) as raised:
        made.execute(CONTEXT)
    assert isinstance(raised.value, AirflowFailException) is not retried
    assert error.message in str(raised.value)


def test_each_try_calls_the_same_run(operator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = task(operator, tmp_path, monkeypatch, "completed", local_parity=True)
    assert [made.execute(CONTEXT)["reason"] for _ in range(2)] == ["completed"] * 2
    first, second = (
        {key: call[key] for key in call if key not in ("output", "progress")} for call in made.calls
    )
    assert first == second
    assert first["run_id"].startswith("d.t.scheduled__2026-01-31-") and first["folder"] == tmp_path
    assert (first["retry_failed"], first["detach"], first["local_parity"]) == (True, False, True)


@pytest.mark.parametrize(
    ("profile", "folder", "used"),
    [
        ("{p}/a/orch.yaml", None, ("a/orch.yaml", "a")),
        ("a/orch.yaml", "{p}", ("a/orch.yaml", "")),
        ("a/orch.yaml", None, ("a/orch.yaml", "a")),
        ("{p}/a/orch.yaml", "{p}", ("a/orch.yaml", "")),
    ],
)
def test_where_profile_and_project_are(
    profile: str,
    folder: str | None,
    used: tuple[str, str],
    operator: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    made = task(operator, tmp_path, monkeypatch, "completed")
    made.folder = folder and folder.format(p=tmp_path)
    made.profile = profile.format(p=tmp_path)
    made.execute(CONTEXT)
    assert (made.calls[0]["profile"], made.calls[0]["folder"]) == (tmp_path / used[0], tmp_path / used[1])


def test_a_deferred_task_waits_again_if_another_attempt_was_started(
    operator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = task(operator, tmp_path, monkeypatch, "running", deferrable=True, run_id="one")
    for call in (lambda: made.execute(CONTEXT), lambda: made.execute_complete(CONTEXT, {"error": None})):
        with pytest.raises(Deferred) as deferred:
            call()
        assert deferred.value.method_name == "execute_complete"
        path, arguments = deferred.value.trigger.serialize()
        assert path == "orchestrator.airflow.trigger.OrchRunTrigger"
        assert arguments == {"folder": str(tmp_path), "run_id": "one", "poll_s": 60.0}
    assert [call["retry_failed"] for call in made.calls] == [True, False]


def test_what_the_triggerer_lacks_fails_the_task(
    operator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = task(operator, tmp_path, monkeypatch, "completed")
    with pytest.raises(AirflowFailException, match="no folder"):
        made.execute_complete(CONTEXT, {"error": "The triggerer has no folder /p."})
    made.profile = "/nowhere/orch.yaml"
    with pytest.raises(AirflowFailException, match="no folder"):
        made.execute(CONTEXT)
    assert made.calls == []
