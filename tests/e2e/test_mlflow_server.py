"""A run in a real MLflow server with SQLite, read back by MLflow's own client."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.stack.uv import uv_binary
from tests.unit import here_cloud
from tests.unit.runs.test_mlflow import MORE, SCRIPT

pytestmark = [pytest.mark.processes, pytest.mark.registry]

READ = """
import json, sys, mlflow
client = mlflow.MlflowClient(sys.argv[1])
(run,) = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
(version,) = client.search_model_versions("name='tiny-model'")
print(json.dumps({
    "status": run.info.status,
    "accuracy": run.data.metrics["accuracy"],
    "params": run.data.params,
    "tags": run.data.tags,
    "loss": [[each.step, each.value] for each in client.get_metric_history(run.info.run_id, "loss")],
    "files": sorted(each.path for each in client.list_artifacts(run.info.run_id, "outputs")),
    "model": [version.version, version.run_id == run.info.run_id, version.status],
}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mlflow") / "venv"
    uv = str(uv_binary())
    subprocess.run([uv, "venv", "-q", str(folder)], check=True)
    subprocess.run([uv, "pip", "install", "-q", "-p", str(folder), "mlflow==3.17.2"], check=True)
    return folder / "bin/python"


@pytest.fixture
def server(python: Path, tmp_path: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    places = [
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/m.db",
        "--artifacts-destination",
        str(tmp_path / "a"),
    ]
    program = [str(python), "-m", "mlflow", "server", "--workers", "1", "--port", str(port), *places]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            with suppress(OSError):
                urllib.request.urlopen(f"{url}/health", timeout=1).close()
                break
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def test_the_client_of_mlflow_reads_what_orch_logged(
    server: str, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    profile = here_cloud.project(tmp_path / "p", SCRIPT, more=MORE)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    for _ in range(2):
        orch.run(profile, run_id="one", folder=profile.parent)
    said = subprocess.run([python, "-c", READ, server], check=True, capture_output=True, text=True).stdout
    found = json.loads(said)
    assert (found["status"], found["accuracy"], found["files"]) == (
        "FINISHED",
        0.95,
        ["outputs/metrics.json", "outputs/model.txt"],
    )
    assert found["params"]["ACCURACY"] == "0.95" and found["tags"]["orch.accepted"] == "True"
    assert found["loss"] == [[1, 1.0], [2, 0.5], [3, 0.3333]]
    assert found["model"] in (["1", True, "READY"], [1, True, "READY"])
