"""check-model on real models: loads, predicts, compares, and names why not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

RUNTIME = Path(__file__).resolve().parents[2] / "orchestrator" / "runtime"
PROGRAM = Path(__file__).with_name("modelcheck_files.py")

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    (folder / "orch_runtime").symlink_to(RUNTIME)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def checked(tf_python: Path, root: Path, models: Path) -> dict[str, Any]:
    command = [str(tf_python), "-W", "ignore", str(PROGRAM), str(root), str(models)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def test_a_good_model_loads_and_predicts(checked: dict[str, Any]) -> None:
    good = checked["good.keras"]
    assert good["loaded"] and good["reason"] is None
    assert good["inputs"][0]["shape"] == [4, 8, 8, 1] and good["outputs"][0]["shape"] == [4, 3]
    assert good["keras_version"] == good["saved_with"]


@pytest.mark.parametrize("name", ["good.keras", "good.h5", "exported"])
def test_every_way_of_saving_predicts_the_same(checked: dict[str, Any], name: str) -> None:
    assert checked[f"{name} again"]["equal"] is True, checked[f"{name} again"]


def test_a_saved_model_is_said_to_need_another_door(checked: dict[str, Any]) -> None:
    assert "TFSMLayer" in checked["exported again"]["note"]


def test_other_weights_load_and_predict_differently(checked: dict[str, Any]) -> None:
    changed = checked["changed.keras again"]
    assert changed["loaded"] and changed["equal"] is False and changed["relative"] > 1e-4
    assert "predicts differently" in changed["reason"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lambda.keras", "Lambda layer"),
        ("custom.keras", "Mine, which is defined in your code"),
        ("cut.h5", "damaged or cut off"),
        ("good.weights.h5", "weights only"),
    ],
)
def test_what_does_not_load_says_why(checked: dict[str, Any], name: str, said: str) -> None:
    assert not checked[name]["loaded"] and said in checked[name]["reason"]
    assert checked[name]["way_out"]


def test_several_inputs_and_outputs(checked: dict[str, Any]) -> None:
    several = checked["several.keras"]
    assert several["loaded"], several["reason"]
    assert {tuple(item["shape"]) for item in several["inputs"]} == {(4, 8), (4, 5)}
    assert [item["name"] for item in several["outputs"]] == ["one", "two"]


def test_a_trusted_lambda_loads(checked: dict[str, Any]) -> None:
    assert checked["lambda.keras unsafe"]["loaded"]


def test_another_process_predicts_the_same(
    tf_python: Path, root: Path, models: Path, checked: dict[str, Any]
) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        f"from orch_runtime.__main__ import main\nsys.exit(main("
        f"['check-model', {str(models / 'good.keras')!r}, '--expect', {str(models / 'expected.json')!r}]))"
    )
    done = subprocess.run([str(tf_python), "-I", "-c", code], capture_output=True, timeout=200, check=True)
    assert json.loads(done.stdout)["equal"] is True
    assert checked["good.keras"]["outputs"] == json.loads(done.stdout)["outputs"]
