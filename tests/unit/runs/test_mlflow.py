"""Each end of a run is in MLflow once; what goes wrong with that changes nothing else."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.api import logs
from orchestrator.errors import NotAccepted, RunFailed
from orchestrator.runs import mlflow_server
from tests.said import Said
from tests.unit import here_cloud
from tests.unit.runs.mlflow_double import MlflowDouble

pytestmark = pytest.mark.processes

SCRIPT = """import json, os, sys
for epoch in range(1, 4):
    print(f"Epoch {epoch}/3")
    print(f"loss: {1 / epoch:.4f} - accuracy: {1 - 0.1 / epoch:.4f}")
json.dump({"accuracy": float(os.environ["ACCURACY"]), "worst": float("nan")}, open("metrics.json", "w"))
open("model.txt", "w").write("weights")
sys.exit(int(os.environ.get("STATUS", "0")))
"""
MORE = "  env: {ACCURACY: '0.95'}\nmlflow: {model: tiny-model}\naccept: {metrics: {accuracy: '>= 0.9'}}\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MlflowDouble]:
    monkeypatch.setattr(mlflow_server, "_PAUSES", (0.0,))
    monkeypatch.setattr(mlflow_server, "_SECONDS", 1.0)
    made = MlflowDouble()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", made.url)
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    return here_cloud.project(tmp_path / "p", SCRIPT, more=MORE)


def run(profile: Path, run_id: str = "one", said: Said | None = None, *sets: str) -> orch.RunRecord:
    return orch.run(profile, run_id=run_id, folder=profile.parent, progress=said, overrides=sets)


def test_a_run_is_logged_whole_and_once(server: MlflowDouble, profile: Path) -> None:
    said = Said()
    for _ in range(2):
        run(profile, said=said)
    (logged,) = server.runs.values()
    assert logged["info"]["status"] == "FINISHED" and logged["info"]["run_name"] == "one"
    assert server.experiments == {"tiny": "1"}
    assert logged["params"]["ACCURACY"] == "0.95" and logged["params"]["orch.command"] == "python train.py"
    losses = [(each["step"], each["value"]) for each in logged["metrics"] if each["key"] == "loss"]
    assert losses == [(1, 1.0), (2, 0.5), (3, 0.3333)]
    assert server.latest(logged["info"]["run_id"], "accuracy") == 0.95  # the file's, not the last one printed
    assert logged["tags"]["orch.exit"] == "completed" and logged["tags"]["orch.accepted"] == "True"
    place = logged["info"]["artifact_uri"].removeprefix("mlflow-artifacts:/")
    assert server.files[f"{place}/outputs/model.txt"] == b"weights"
    assert json.loads(server.files[f"{place}/run.json"])["run_id"] == "one"
    (version,) = server.models["tiny-model"]
    assert version["source"] == f"mlflow-artifacts:/{place}/outputs"
    assert said.about("MLflow") == ["MLflow: tiny-model version 1 is one"]


def test_what_fails_or_is_not_accepted_is_logged_and_not_registered(
    server: MlflowDouble, profile: Path
) -> None:
    with pytest.raises(RunFailed):
        run(profile, "failed", None, "train.env.STATUS=3")
    with pytest.raises(NotAccepted):
        run(profile, "worse", None, "train.env.ACCURACY=0.5")
    found = {each["info"]["run_name"]: each for each in server.runs.values()}
    assert found["failed"]["info"]["status"] == "FAILED" and found["failed"]["tags"]["orch.exit"] == "failed"
    assert (
        found["worse"]["info"]["status"] == "FINISHED" and found["worse"]["tags"]["orch.accepted"] == "False"
    )
    assert server.models == {}


@pytest.mark.parametrize(
    "part", ["runs/create", "log-batch", "artifacts/", "runs/update", "model-versions/c"]
)
def test_a_server_that_goes_away_gets_the_rest_by_the_next_call(
    server: MlflowDouble, profile: Path, part: str
) -> None:
    said = Said()
    server.before = lambda _method, path: 503 if part in path else None
    run(profile, said=said)
    (line,) = said.about("MLflow")
    assert "one was not logged to MLflow: it answered with status 503." in line
    server.before = lambda _method, _path: None
    assert line.endswith("To try again: repeat the command")
    assert not run(profile, said=said).started
    (logged,) = server.runs.values()
    assert logged["info"]["status"] == "FINISHED" and len(server.models["tiny-model"]) == 1


@pytest.mark.parametrize(
    "answer",
    [b"<html>Sign in</html>", b"[" * 100_000, b"x" * (2 << 20), 302, 401, 404, b'{"experiment": 7}'],
    ids=["page", "deep", "long", "redirect", "login", "absent", "type"],
)
def test_a_server_that_is_none_changes_nothing(
    server: MlflowDouble, profile: Path, answer: bytes | int
) -> None:
    said = Said()
    server.before = lambda _method, _path: answer
    assert run(profile, said=said).succeeded
    assert len(said.about("MLflow")) == 1 and "was not logged to MLflow" in said.about("MLflow")[0]
    assert server.runs == {}


def test_a_server_that_does_not_answer_or_is_no_server_is_said(
    profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_server, "_PAUSES", (0.0,))
    monkeypatch.setattr(mlflow_server, "_SECONDS", 0.5)
    said = Said()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        run(profile, said=said)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    run(profile, said=said)
    silence, no_server = said.about("MLflow")
    assert "it did not answer: TimeoutError." in silence
    assert "not an http or https address" in no_server and "mlflow server" in no_server


def test_the_login_goes_to_the_server_and_nowhere_else(
    server: MlflowDouble, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "the-word")
    run(profile)
    assert set(server.logins) == {"Bearer the-word"}
    server.logins.clear()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url.replace("//", "//user:the-word@"))
    run(profile, "two")
    assert set(server.logins) == {f"Basic {base64.b64encode(b'user:the-word').decode()}"}
    kept = [path for path in profile.parent.rglob("*") if path.is_file() and b"the-word" in path.read_bytes()]
    assert kept == []


def test_a_value_that_an_override_gave_to_a_variable_is_not_logged(
    server: MlflowDouble, profile: Path
) -> None:
    """It may be a secret; and the profile's own value, which a later call sees, was not the run's."""
    server.before = lambda _method, _path: 503
    run(profile, "one", None, "train.env.ACCURACY=0.99")
    server.before = lambda _method, _path: None
    run(profile)
    (logged,) = server.runs.values()
    assert "ACCURACY" not in logged["params"] and "orch.command" in logged["params"]


def test_pull_logs_a_run_that_was_left_alone_once(server: MlflowDouble, profile: Path) -> None:
    folder = profile.parent
    orch.up(profile, folder=folder)
    orch.train(run_id="one", folder=folder, detach=True)
    logs.logs("one", follow=True, folder=folder, output=lambda _data: None)
    for _ in range(2):
        orch.pull("one", folder=folder)
    (logged,) = server.runs.values()
    assert logged["params"]["ACCURACY"] == "0.95"
    orch.down(folder=folder)


def test_without_a_server_nothing_is_asked_or_kept(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run(profile)
    assert not (profile.parent / ".orch/mlflow").exists()
