"""orch compare, seen from outside: verdict, exit code, text and JSON."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from orchestrator import api
from orchestrator.api.rerunning import compared as compared_runs
from orchestrator.api.schemas import schema
from orchestrator.cli.app import app
from orchestrator.runs import record_file
from orchestrator.runs.outputs import compare_files_and_metrics
from tests.unit.parity_runs import ENVIRONMENT, Run, step

RUNS = {
    "IDENTICAL": Run([step(), step()]),
    "EQUIVALENT": Run([step(), step(activation_b=[3.0, 5.0 * (1 + 2.0**-23)])]),
    "DIVERGENT": Run([step(), step(batch_data_0=[1.0, 2.0, 3.0, 9.0])]),
    "NOT COMPARED": Run([]),
}


def compared(folder: Path, run: Run, *words: str) -> tuple[int, str]:
    """The exit code and standard output of comparing the usual run with `run`."""
    a = Run([step(), step()]).write(folder / "a")
    b = run.write(folder / "b")
    done = CliRunner().invoke(app, ["compare", str(a), str(b), *words])
    return done.exit_code, done.stdout


@pytest.mark.parametrize("verdict", RUNS)
def test_the_verdict_is_the_first_word_and_the_exit_code(tmp_path: Path, verdict: str) -> None:
    code, said = compared(tmp_path, RUNS[verdict])
    assert said.startswith(f"{verdict}: ")
    assert code == (0 if verdict == "IDENTICAL" else 7)
    assert "--confirm" not in said, "neither can be run again here"
    why = "A cannot be run again here: its recording does not say how it was started"
    assert (why in said) == (verdict in ("EQUIVALENT", "DIVERGENT"))
    assert "\x1b" not in said, "no colours where there is no terminal"


@pytest.mark.parametrize("verdict", RUNS)
def test_the_object_is_the_published_one(tmp_path: Path, verdict: str) -> None:
    _, said = compared(tmp_path, RUNS[verdict], "--json")
    value: dict[str, Any] = json.loads(said)
    assert (value.pop("schema"), value["verdict"]) == ("orch.compare/1", verdict)
    jsonschema.Draft202012Validator(schema("run")["properties"]["parity"]).validate(value)


def test_a_file_is_named_with_what_it_did(tmp_path: Path) -> None:
    def reading(digest: str) -> dict[str, Any]:
        entry = {"name": "data.csv", "path": f"/{digest}/data.csv", "bytes": 9, "sha256": digest}
        return {**ENVIRONMENT, "files": {"list": [entry]}}

    a = Run([step()], environment=reading("aa")).write(tmp_path / "a")
    b = Run([step(batch_data_0=[1.0, 2.0, 3.0, 9.0])], environment=reading("bb")).write(tmp_path / "b")
    done = CliRunner().invoke(app, ["compare", str(a), str(b), "--json"])
    found = json.loads(done.stdout)
    assert (found["stage"], found["tensor"]) == ("files", "data.csv")
    assert (found["shows"]["stage"], found["shows"]["tensor"]) == ("batch", "data/0")
    text = re.sub(r"\s+", " ", CliRunner().invoke(app, ["compare", str(a), str(b)]).stdout)
    assert "first differ in step 1, in the files that are read: data.csv." in text
    assert "Batch: 1 of 4 records differs, the others are equal and in place" in text


def test_where_neither_run_can_be_repeated_that_is_said(tmp_path: Path) -> None:
    code, said = compared(tmp_path, RUNS["DIVERGENT"], "--confirm")
    assert code == 7
    assert "The cause was not confirmed: A cannot be run again here" in re.sub(r"\s+", " ", said)


def test_a_budget_has_a_unit(tmp_path: Path) -> None:
    code, _ = compared(tmp_path, RUNS["DIVERGENT"], "--confirm", "--budget", "soon")
    assert code == 2


RECORD: dict[str, Any] = {
    "schema": "orch.run/1",
    "run_id": "one",
    "exit": {"reason": "completed"},
    "code": {"digest": "c" * 64, "files": 3},
    "data": {"digest": "d" * 64, "files": 1, "bytes": 9},
    "stack": {"digest": "e" * 64, "python": "3.11.7"},
    "machine": {"instance_type": "g2-standard-4"},
    "metrics": {"accuracy": 0.75, "loss": 0.5},
}


def trained(place: Path, **changed: Any) -> None:
    place.mkdir(parents=True)
    (place / "run.json").write_text(json.dumps({**RECORD, **changed}))


@pytest.mark.parametrize(
    ("changed", "verdict", "differing"),
    [
        ({}, "NOT COMPARED", set()),
        ({"machine": {"instance_type": "a2-highgpu-1g"}}, "NOT COMPARED", {"machine"}),
        ({"stack": {"digest": "f" * 64, "python": "3.11.7"}}, "NOT COMPARED", {"packages"}),
        ({"metrics": {"accuracy": 0.75, "loss": 0.25}}, "DIVERGENT", {"metric loss"}),
        ({"data": {"digest": "0" * 64}}, "DIVERGENT", {"data"}),
        ({"code": {"digest": "0" * 64, "files": 3}}, "DIVERGENT", {"code"}),
    ],
)
def test_runs_without_tensors_are_compared_by_their_records(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    verdict: str,
    differing: set[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    trained(tmp_path / "runs/n1")
    trained(tmp_path / "runs/n2", **changed)
    done = CliRunner().invoke(app, ["compare", "n1", "n2", "--json"])
    found = json.loads(done.stdout)
    assert (done.exit_code, found["verdict"], found["confirmed"]) == (7, verdict, False)
    assert {each["name"] for each in found["recorded"] if each["equal"] is False} == differing
    assert {each["name"] for each in found["recorded"] if each["equal"] is None} == {"command"}
    text = re.sub(r"\s+", " ", CliRunner().invoke(app, ["compare", "n1", "n2", "--confirm"]).stdout)
    assert "--confirm" not in text and "orch train --local-parity" in text
    assert all(name in text for name in differing)


def test_a_run_that_left_neither_tensors_nor_a_record_is_refused(tmp_path: Path) -> None:
    trained(tmp_path / "a")
    (tmp_path / "b").mkdir()
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    assert done.exit_code == 2


JOB: dict[str, Any] = {
    "command": ["python", "train.py"],
    "artifacts": [{"path": "outputs/weights", "sha256": "a" * 64, "bytes": 9}],
}
OTHER_FILE = [{"path": "outputs/weights", "sha256": "b" * 64, "bytes": 9}]
NOT_DOWNLOADED: list[Any] = []


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "IDENTICAL"),
        ({"machine": {"instance_type": "a2-highgpu-1g"}}, "IDENTICAL"),
        ({"data": None}, "NOT COMPARED"),
        ({"stack": {"digest": "f" * 64, "python": "3.11.7"}}, "NOT COMPARED"),
        ({"exit": {"reason": "failed"}}, "NOT COMPARED"),
        ({"artifacts": OTHER_FILE}, "DIVERGENT"),
        ({"artifacts": NOT_DOWNLOADED}, "DIVERGENT"),
        ({"metrics": {"accuracy": 0.75}}, "DIVERGENT"),
        ({"code": {"digest": "0" * 64, "files": 3}}, "DIVERGENT"),
    ],
)
def test_the_same_job_with_the_same_results_is_identical_as_rerun_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], verdict: str
) -> None:
    monkeypatch.chdir(tmp_path)
    trained(tmp_path / "runs/n1", **JOB)
    trained(tmp_path / "runs/n2", **{**JOB, **changed})
    (tmp_path / "runs/n2/observe").mkdir()  # as a program without TensorFlow leaves it
    done = CliRunner().invoke(app, ["compare", "n1", "n2", "--json"])
    found = json.loads(done.stdout)
    assert (found["verdict"], done.exit_code) == (verdict, 0 if verdict == "IDENTICAL" else 7)
    assert (found["compared"], found["steps"]) == (0, 0) and found["recorded"]
    said = CliRunner().invoke(app, ["compare", "n1", "n2"]).stdout
    text = re.sub(r"\s+", " ", said)
    assert "No tensors of both runs were recorded." in text
    if verdict == "IDENTICAL":
        assert "Equal: command, code, data, packages" in text and "metric loss, results" in text
        assert "Treatment" not in text
    first, second = (record_file.read(tmp_path / "runs" / name) for name in ("n1", "n2"))
    assert first and second
    rerun = compared_runs(first, second, api.compare("n1", "n2", folder=tmp_path))
    assert str(rerun.conclusion) == verdict


def test_a_file_that_the_second_run_wrote_over_is_not_taken_for_equal(tmp_path: Path) -> None:
    model = tmp_path / "model.npz"
    with zipfile.ZipFile(model, "w") as archive:
        archive.writestr("a", b"of the second run")
    runs = []
    for name in ("n1", "n2"):
        found = [{"path": "../../model.npz", "sha256": name * 32, "bytes": 9}]
        trained(tmp_path / "runs" / name, **{**JOB, "artifacts": found, "metrics": {}, "machine": None})
        runs.append(record_file.read(tmp_path / "runs" / name))
    assert runs[0] and runs[1]
    assert compare_files_and_metrics(runs[0], runs[1]).outputs == ()
    assert api.compare("n1", "n2", folder=tmp_path).verdict == "NOT COMPARED"
