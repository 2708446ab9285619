"""Hostile models: none of them is loaded, nothing is started, no canary is read, and the answer says why."""

from __future__ import annotations

import base64
import json
import os
import pickle
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
RUNTIME = Path(__file__).resolve().parents[3] / "orchestrator" / "runtime"
SECRET = "canary-3141592653"

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(300)]

RUN_CODE = {
    *("system.pkl", "old-system.pkl", "dotted.pkl", "dotted-allowed.pkl", "getattr.pkl", "eval.pkl"),
    *("numpy-load.pkl", "partial.pkl", "pipeline.pkl", "shadowed.pkl", "extension.pkl", "flags.pkl"),
    *("wrapper.joblib", "packed.joblib", "objects.npy", "objects.npz"),
    *("lambda.keras", "lambda.h5", "project.keras", "subprocess.keras", "custom.keras", "lambda-value.keras"),
    *("saved.keras", "torch.keras", "not-a-layer.keras", "function.keras", "weights.keras"),
    *("both.h5", "both.keras", "python"),
}
USE_FILES = {
    *("filename.pkl", "words.keras", "slip.keras", "link.weights.h5", "raw.weights.h5", "virtual.weights.h5"),
    *("link.keras", "symlink.weights.h5", "vocab.txt"),
    *("reads", "lists", "writes", "prints", "restores", "linked"),
}
TOO_LARGE = {"nested.keras", "bomb.keras"}
DAMAGED = {"codec.pkl", "huge.pkl"}
PAIRED = "pair/weighed.weights.h5"
LIMITED = {"huge.npy", "huge.weights.h5", "bomb.joblib", "endless.pkl"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    (folder / "orch_runtime").symlink_to(RUNTIME)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    (folder / ".aws").mkdir()
    (folder / ".aws" / "credentials").write_text(f"aws_secret_access_key = {SECRET}\n")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def first(tf_python: Path, root: Path, home: Path, models: Path) -> dict[str, Any]:
    """Every hostile file, checked without any isolation, with an ear to what Python does meanwhile."""
    canary = str(home / ".aws" / "credentials")
    command = [str(tf_python), "-W", "ignore", str(HERE / "artifacts.py"), str(root), str(models), canary]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def check(python: Path, root: Path, home: Path, models: Path, *words: str) -> dict[str, dict[str, Any]]:
    """The verb as `orch` starts it here: in an environment that has secrets. Answers by name."""
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        f"from orch_runtime.__main__ import main\nsys.exit(main(['check-model', *{words!r}]))"
    )
    environ = {**os.environ, "HOME": str(home), "AWS_SECRET_ACCESS_KEY": SECRET}
    done = subprocess.run(
        [str(python), "-I", "-c", code],
        capture_output=True,
        timeout=250,
        check=False,
        cwd=models,
        env=environ,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert SECRET not in done.stdout.decode() and SECRET not in done.stderr.decode()
    value = json.loads(done.stdout)
    return {each["path"]: each for each in value.get("results", [value])}


# ---------------------------------------------------------------- the first wall, by itself


def test_every_hostile_file_is_in_the_suite(first: dict[str, Any]) -> None:
    assert set(first["names"]) == RUN_CODE | USE_FILES | TOO_LARGE | DAMAGED | LIMITED
    assert len(first["names"]) >= 50


def test_nothing_was_started_read_or_imported(first: dict[str, Any]) -> None:
    assert first["seen"] == [] and first["marked"] is False


@pytest.mark.parametrize("name", sorted(RUN_CODE))
def test_what_would_run_code_is_not_checked(first: dict[str, Any], name: str) -> None:
    found = first["found"][name]
    assert (found["loaded"], found.get("not_checked")) == (False, "would-run-code"), found
    assert found["reason"].startswith("not checked: would run code (") and found["way_out"]


@pytest.mark.parametrize("name", sorted(USE_FILES))
def test_what_would_use_other_files_is_not_checked(first: dict[str, Any], name: str) -> None:
    found = first["found"][name]
    assert (found["loaded"], found.get("not_checked")) == (False, "would-use-files"), found


def test_what_claims_to_be_large_is_not_unpacked(first: dict[str, Any]) -> None:
    assert {first["found"][name].get("not_checked") for name in TOO_LARGE} == {"too-large"}
    assert not any(first["found"][name]["loaded"] for name in DAMAGED)


# ---------------------------------------------------------------- the second wall


@pytest.fixture(scope="module")
def second(tf_python: Path, root: Path, home: Path, models: Path, first: dict[str, Any]) -> dict[str, Any]:
    """The same files by the verb, with a module of the user's let in that tries everything."""
    (models / "prober.py").write_text((HERE / "prober.py").read_text())
    with socket.create_server(("127.0.0.1", 0)) as server:
        state = {
            "home": str(home),
            "parent": os.getpid(),
            "port": server.getsockname()[1],
            "mark": str(models / "was run"),
            "artifact": str(models / "means.json"),
        }
        (models / "means.json").write_text("{}")
        made = b"\x80\x04\x8c\x06prober\x8c\x05Probe\x93)\x81" + pickle.dumps(state, 4)[2:-1] + b"b."
        (models / "probe.pkl").write_bytes(made)
        names = sorted({*first["names"], "probe.pkl", PAIRED} - {"endless.pkl"})
        options = ("--folder", str(models), "--import", "prober", "--memory", "1500")
        return check(tf_python, root, home, models, *names, *options)


def test_both_isolations_give_the_same_answers(first: dict[str, Any], second: dict[str, Any]) -> None:
    for name, found in first["found"].items():
        assert second[name].get("not_checked") == found.get("not_checked"), second[name]
        assert second[name]["loaded"] is False


def test_weights_of_a_model_that_would_run_code_are_not_said_to_predict(second: dict[str, Any]) -> None:
    found = second[PAIRED]
    assert found["loaded"] and found["tensors"] and "outputs" not in found
    assert found["not_checked"] == "would-run-code"
    assert "would run code" in found["reason"] and found["way_out"]


def test_claims_that_need_memory_meet_the_limit(second: dict[str, Any]) -> None:
    found = {name: second[name].get("not_checked") for name in LIMITED - {"endless.pkl"}}
    assert found == {"huge.npy": "too-large", "huge.weights.h5": "too-large", "bomb.joblib": "too-large"}


def test_the_answer_says_what_isolated_it(second: dict[str, Any]) -> None:
    held = second["reads"]["isolation"]
    assert held["files"] and held["network"] and held["processes"], held


def test_code_that_was_let_in_reaches_nothing_either(second: dict[str, Any], models: Path) -> None:
    probe = second["probe.pkl"]
    assert probe["loaded"], probe["reason"]
    said = {t["name"]: base64.b64decode(t["values"]).decode("utf-32-le") for t in probe["tensors"]}
    assert not any(SECRET in text for text in said.values()), said
    variables = {each.partition("=")[0] for each in said["variables"].split(" ")}
    assert not variables & {"HOME", "USER", "PATH", "AWS_SECRET_ACCESS_KEY"}, variables
    done = {name for name, text in said.items() if text.startswith("done")}
    assert done <= {"own_environ"}, said
    assert not (models / "was run").exists() and (models / "means.json").read_text() == "{}"


def test_an_endless_file_costs_its_time_and_no_other_file(
    tf_python: Path, root: Path, home: Path, models: Path, first: dict[str, Any]
) -> None:
    assert "endless.pkl" in first["names"]
    (models / "labels.txt").write_text("one\n")
    found = check(tf_python, root, home, models, "endless.pkl", "labels.txt", "--seconds", "16")
    assert found["endless.pkl"]["not_checked"] == "time"
    assert found["labels.txt"]["loaded"] is True
