"""check-model on real files: loads, predicts, compares, and names why not."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.runtime.modelcheck.compare import against

RUNTIME = Path(__file__).resolve().parents[2] / "orchestrator" / "runtime"
PROGRAM = Path(__file__).with_name("modelcheck_files.py")
KERAS_2 = Path(__file__).resolve().parents[1] / "golden" / "keras2"

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
def everything(tf_python: Path, root: Path, models: Path) -> dict[str, Any]:
    command = [str(tf_python), "-W", "ignore", str(PROGRAM), str(root), str(models)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def found(everything: dict[str, Any]) -> dict[str, Any]:
    return dict(everything["found"])


@pytest.fixture(scope="module")
def again(everything: dict[str, Any]) -> dict[str, Any]:
    return dict(everything["again"])


def run(python: Path, root: Path, *words: str, cwd: Path | None = None) -> Any:
    """check-model in a process of its own, as a machine runs it."""
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        f"from orch_runtime.__main__ import main\nsys.exit(main(['check-model', *{words!r}]))"
    )
    done = subprocess.run(
        [str(python), "-I", "-c", code], capture_output=True, timeout=250, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return json.loads(done.stdout)


# ---------------------------------------------------------------- whole models


def test_a_good_model_loads_and_predicts(found: dict[str, Any]) -> None:
    good = found["good.keras"]
    assert good["loaded"] and good["reason"] is None
    assert good["inputs"][0]["shape"] == [4, 8, 8, 1] and good["outputs"][0]["shape"] == [4, 3]
    assert good["keras_version"] == good["saved_with"]


@pytest.mark.parametrize("name", ["good.keras", "good.h5", "exported"])
def test_every_way_of_saving_predicts_the_same(again: dict[str, Any], name: str) -> None:
    assert again[name]["equal"] is True, again[name]


def test_a_saved_model_is_said_to_need_another_door(again: dict[str, Any]) -> None:
    assert "TFSMLayer" in again["exported"]["note"]


def test_other_weights_load_and_predict_differently(again: dict[str, Any]) -> None:
    changed = again["changed.keras"]
    assert changed["loaded"] and changed["equal"] is False and changed["relative"] > 1e-4
    assert "predicts differently" in changed["reason"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lambda.keras", "not checked: would run code (a Lambda layer)"),
        ("custom.keras", "not checked: would run code (Mine)"),
        ("own.keras", "not checked: would run code (own_layers.Doubled)"),
        ("cut.h5", "damaged or cut off"),
        ("points/cut", "0 of its 1 data files"),
        ("points/damaged.index", "damaged or cut off"),
        ("evil.pkl", "not checked: would run code (posix.mkdir)"),
        ("evil.joblib", "not checked: would run code (posix.mkdir)"),
        ("script.pkl", "Scaler, which is defined in the script that made it"),
        ("cut.pkl", "damaged or cut off"),
        ("objects.npy", "not checked: would run code (Python objects"),
    ],
)
def test_what_does_not_load_says_why(found: dict[str, Any], name: str, said: str) -> None:
    assert not found[name]["loaded"] and said in found[name]["reason"], found[name]
    assert found[name]["way_out"]


def test_a_pickle_that_acts_was_not_run(found: dict[str, Any], models: Path) -> None:
    assert found["evil.pkl"]["loaded"] is False and not (models / "was run").exists()


def test_several_inputs_and_outputs(found: dict[str, Any]) -> None:
    several = found["several.keras"]
    assert several["loaded"], several["reason"]
    assert {tuple(item["shape"]) for item in several["inputs"]} == {(4, 64), (4, 5)}
    assert [item["name"] for item in several["outputs"]] == ["one", "two"]


def test_sizes_that_a_model_leaves_open_are_tried(found: dict[str, Any]) -> None:
    assert found["open.keras"]["inputs"][0]["shape"] == [4, 96, 96, 3]
    assert found["places.keras"]["inputs"][0]["shape"] == [4, 8], found["places.keras"]["reason"]


def test_a_model_that_takes_no_batch_says_why(found: dict[str, Any]) -> None:
    never = found["never.keras"]
    assert not never["loaded"] and "it loads, but predicts no batch" in never["reason"]


def test_half_widths_are_compared_too(found: dict[str, Any]) -> None:
    narrow = found["narrow.keras"]["outputs"][0]
    assert narrow["dtype"] == "bfloat16" and len(base64.b64decode(narrow["values"])) == 4 * 2 * 4


def test_classes_of_the_project_are_imported_where_the_profile_names_their_module(
    everything: dict[str, Any],
) -> None:
    own, refused = everything["own"]["own.keras"], everything["found"]["own.keras"]
    assert own["loaded"], own["reason"]
    assert refused["not_checked"] == "would-run-code" and "train.check_imports" in refused["way_out"]


def test_another_process_predicts_the_same(
    tf_python: Path, root: Path, models: Path, found: dict[str, Any]
) -> None:
    result = run(tf_python, root, str(models / "good.keras"))
    assert against(json.loads((models / "expected.json").read_text()), result)["equal"] is True
    assert found["good.keras"]["outputs"] == result["outputs"]


# ---------------------------------------------------------------- weights alone


def test_weights_alone_are_read_and_compared(found: dict[str, Any]) -> None:
    alone = found["alone/good.weights.h5"]
    assert alone["loaded"] and "outputs" not in alone
    shapes = sorted(tuple(each["shape"]) for each in alone["tensors"])
    assert shapes == [(3,), (3, 3, 1, 4), (4,), (144, 3)]
    assert "other.keras beside it does not take these weights" in alone["note"]


@pytest.mark.parametrize("name", ["beside/good.weights.h5", "points/good"])
def test_weights_beside_their_model_predict(found: dict[str, Any], name: str) -> None:
    assert found[name]["outputs"] == found["good.keras"]["outputs"], found[name]["note"]


def test_changed_weights_name_the_first_tensor(again: dict[str, Any]) -> None:
    changed = again["beside/changed.weights.h5"]
    assert changed["equal"] is False
    assert "1 of 4 tensors differ" in changed["reason"] and "by at most 0.01" in changed["reason"]


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("weights.npz", [[3], [10, 6]]),
        ("net", [[3], [10, 6]]),
        ("theta.npy", [[10, 6]]),
        ("state", [[10, 6]]),
    ],
)
def test_arrays_are_read_by_any_name_and_say_what_is_not_finite(
    found: dict[str, Any], name: str, shapes: list[list[int]]
) -> None:
    assert found[name]["loaded"] and found[name]["kind"] == "table", found[name]
    assert [each["shape"] for each in found[name]["tensors"]] == shapes
    assert sum(each["not_finite"] for each in found[name]["tensors"]) == (2 if len(shapes) == 2 else 0)
    assert "outputs" not in found[name]


# ---------------------------------------------------------------- what prepares the input


def test_everything_equals_itself(again: dict[str, Any]) -> None:
    itself = {name: value for name, value in again.items() if name.endswith(" itself")}
    assert len(itself) > 15
    assert {name for name, value in itself.items() if value["equal"] is not True} == set()


@pytest.mark.parametrize("name", ["scaler.pkl", "scaler.joblib", "pipeline.pkl"])
def test_a_scaler_shows_what_it_learned_and_does(found: dict[str, Any], name: str) -> None:
    scaler = found[name]
    assert scaler["loaded"], scaler["reason"]
    assert any(each["name"].endswith("mean_") and each["shape"] == [6] for each in scaler["tensors"])
    assert scaler["outputs"][0]["shape"] == [4, 6] and scaler["outputs"][0]["name"] == "transform"


@pytest.mark.parametrize(
    ("name", "shape"), [("labels.pkl", [3]), ("colours.pkl", [4, 2]), ("words.pkl", [3, 3])]
)
def test_encoders_are_asked_for_what_they_know(found: dict[str, Any], name: str, shape: list[int]) -> None:
    assert found[name]["loaded"] and found[name]["outputs"][0]["shape"] == shape


def test_plain_numbers_in_a_pickle(found: dict[str, Any]) -> None:
    assert {each["name"] for each in found["statistics.pkl"]["tensors"]} == {"mean", "names", "width"}
    assert found["table.joblib"]["tensors"][0]["shape"] == [50_000]


@pytest.mark.parametrize(
    ("name", "said"),
    [("scaler.pkl", "mean_"), ("means.npz", "std (by at most 0.001"), ("classes.json", "its content")],
)
def test_another_fit_is_told_from_the_first(again: dict[str, Any], name: str, said: str) -> None:
    other = again[f"other/{name}"]
    assert other["loaded"] and other["equal"] is False and said in other["reason"]


def test_line_ends_are_no_difference_of_a_vocabulary(again: dict[str, Any]) -> None:
    assert again["other/vocab.txt"]["equal"] is True


# ---------------------------------------------------------------- saved by Keras 2


@pytest.fixture(scope="module")
def of_keras_2(tf_python: Path, root: Path) -> dict[str, Any]:
    """What Keras 2.15 and scikit-learn 1.3 wrote and predicted, checked here."""
    expected = json.loads((KERAS_2 / "expected.json").read_text())["results"]
    names = [each["path"] for each in expected]
    results = run(tf_python, root, *names, cwd=KERAS_2)["results"]
    compared = zip(names, expected, results, strict=True)
    return {name: {**result, **against(earlier, result)} for name, earlier, result in compared}


@pytest.mark.parametrize(
    "name", ["model.keras", "model.h5", "saved", "model.weights.h5", "ckpt/weights", "scaler.pkl"]
)
def test_what_keras_2_saved_predicts_the_same(of_keras_2: dict[str, Any], name: str) -> None:
    result = of_keras_2[name]
    assert result["loaded"] and result["equivalent"], result["reason"]
    assert result["outputs"], result["note"]


def test_a_layer_that_keras_3_dropped_is_named(of_keras_2: dict[str, Any]) -> None:
    gone = of_keras_2["gone.h5"]
    said = gone["note"] if gone["loaded"] else gone["reason"]
    assert "ThresholdedReLU, which Keras 3" in said and "saved by Keras 2.15.0" in said
    assert gone["loaded"] or "keras==2.15.0" in gone["way_out"]


def test_a_scaler_of_another_version_says_so(of_keras_2: dict[str, Any]) -> None:
    assert of_keras_2["scaler.pkl"]["saved_with"] == "scikit-learn 1.3.2"


def test_keras_2_beside_keras_3_loads_what_keras_3_dropped(
    tf_python: Path, root: Path, of_keras_2: dict[str, Any]
) -> None:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tf_keras') is None)"
    if subprocess.run([str(tf_python), "-c", code], capture_output=True, check=False).returncode:
        pytest.skip("tf_keras is not in the environment of the tests")
    expected = json.loads((KERAS_2 / "expected.json").read_text())["results"]
    result = run(tf_python, root, "gone.h5", cwd=KERAS_2)
    found = against(next(each for each in expected if each["path"] == "gone.h5"), result)
    assert result["loaded"] and found["equivalent"], found.get("reason")
    assert "TF_USE_LEGACY_KERAS" in result["note"] and of_keras_2["gone.h5"]["loaded"]
