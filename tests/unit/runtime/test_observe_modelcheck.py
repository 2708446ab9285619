"""check-model without a framework: what a file is, why it does not load, and whether predictions agree."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import pickle
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runtime import modelcheck
from orchestrator.runtime.modelcheck.answers import sound
from orchestrator.runtime.modelcheck.compare import against
from orchestrator.runtime.modelcheck.explain import explain, way_to_import
from orchestrator.runtime.modelcheck.files import ModelFile, identify
from orchestrator.runtime.modelcheck.select import checkable


def archive(path: Path, version: str = "3.15.1") -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("metadata.json", json.dumps({"keras_version": version}))
        file.writestr("config.json", "{}")
        file.writestr("model.weights.h5", b"\x89HDF\r\n\x1a\n" + bytes(2000))
    return path


def zipped(name: str) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as file:
        file.writestr(name, b"")
    return raw.getvalue()


def test_an_archive_names_its_keras(tmp_path: Path) -> None:
    file = identify(archive(tmp_path / "m.keras"))
    assert (file.kind, file.saved_with, file.refusal) == ("keras", "3.15.1", None)
    assert file.sha256 == hashlib.sha256((tmp_path / "m.keras").read_bytes()).hexdigest()


def reason(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert modelcheck.main([str(path)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert not result["loaded"] and result["way_out"]
    return str(result["reason"])


def test_files_that_are_no_models_say_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = archive(tmp_path / "m.keras").read_bytes()
    contents = {
        "lfs.keras": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-lfs pointer"),
        "cut.keras": (whole[: len(whole) // 2], "damaged or cut off"),
        "flipped.keras": (whole.replace(bytes(900), b"\1" + bytes(899), 1), "wrong checksum"),
        "empty.keras": (b"", "empty"),
        "text.keras": (b"hello", "neither"),
        "half.data-00000-of-00002": (b"0", "no file of a known kind"),
    }
    for name, (content, said) in contents.items():
        (tmp_path / name).write_bytes(content)
        assert said in reason(tmp_path / name, capsys)
    (tmp_path / "half.index").write_bytes(b"0")
    assert "1 of its 2 data files" in reason(tmp_path / "half", capsys)
    assert "cannot be read" in reason(tmp_path / "absent.keras", capsys)
    assert "without a saved_model.pb" in reason(tmp_path, capsys)


@pytest.mark.parametrize(
    ("error", "said", "way"),
    [
        (
            TypeError("Could not locate class 'Attention2'. Make sure custom"),
            "not checked: would run code (Attention2)",
            "Register",
        ),
        (
            ValueError("Unknown layer: 'Mine'. Please ensure you are using"),
            "not checked: would run code (Mine)",
            "Register",
        ),
        (
            ValueError("Requested the deserialization of a `Lambda` … pass `safe_mode=False`"),
            "would run code (a Lambda",
            "train.check_imports",
        ),
        (ModuleNotFoundError("No module named 'h5py'", name="h5py"), "not checked: no reader", "Add h5py"),
        (ModuleNotFoundError("No module named 'x'", name="x"), "package x is not installed", "lock"),
        (ValueError("Unrecognized keyword 'foo'"), "saved by Keras 3.9", "keras==3.9"),
        (MemoryError(), "memory", "more memory"),
    ],
)
def test_exceptions_become_reasons(
    error: Exception, said: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "orchestrator.runtime.modelcheck.predict.versions", lambda: {"keras_version": "3.15.1"}
    )
    found = explain(error, ModelFile(Path("m.keras"), "", "keras", "3.9"))
    assert said in found.reason and way in found.way_out


@pytest.mark.parametrize(
    ("module", "registered", "way"),
    [
        ("lib.layers", "shapes>Scaled", "train.check_imports: [lib.layers]. It registers the class"),
        ("lib.layers", "Scaled", "Register the class"),
        ("__main__", "shapes>Scaled", "in a module of the project"),
        ("no name, but words", "shapes>Scaled", "Register the class"),
        (None, None, "Register the class"),
    ],
)
def test_a_registered_class_needs_its_module_named_and_nothing_else(
    module: object, registered: object, way: str
) -> None:
    assert way in way_to_import(module, registered)


def test_files_are_told_by_what_they_hold(tmp_path: Path) -> None:
    contents = {
        "scaler.pkl": (b"\x80\x04N.", "pickle"),
        "means.npz": (b"PK\x03\x04", "table"),
        "vocab.txt": (b"one\n", "text"),
        "w.weights.h5": (b"\x89HDF\r\n\x1a\n", "weights"),
        "w.index": (b"0", "checkpoint"),
        "w.data-00000-of-00001": (b"0", "unknown"),
    }
    for name, (content, _) in contents.items():
        (tmp_path / name).write_bytes(content)
    assert {name: identify(tmp_path / name).kind for name in contents} == {
        name: kind for name, (_, kind) in contents.items()
    }
    assert identify(tmp_path / "w").sha256 == identify(tmp_path / "w.index").sha256


def test_what_is_checked_of_a_run() -> None:
    paths = [
        *("out/model.keras", "out/m.weights.h5", "out/sm/saved_model.pb", "out/sm/variables/variables.index"),
        *("out/ckpt-3.index", "out/ckpt-3.data-00000-of-00001", "out/scaler.joblib", "out/label_encoder.pkl"),
        *(
            "out/vocab.txt",
            "out/class_names.json",
            "out/metrics.json",
            "out/log.txt",
            "out/sm/assets/vocab.txt",
        ),
    ]
    assert checkable(paths) == [
        *("out/model.keras", "out/sm", "out/m.weights.h5", "out/ckpt-3"),
        *("out/class_names.json", "out/label_encoder.pkl", "out/scaler.joblib", "out/vocab.txt"),
    ]


@pytest.mark.parametrize(
    "name",
    [
        *("weights.npz", "theta.npy", "W.NPZ", "fit.joblib", "fit.pkl.gz", "fit.joblib.z", "fit.sav"),
        *("net.pt", "net.pth", "net.safetensors", "net.onnx", "net.tflite"),
    ],
)
def test_no_name_is_needed_to_be_checked(name: str) -> None:
    assert checkable([f"out/{name}", "out/output.log"]) == [f"out/{name}"]


@pytest.mark.parametrize(
    ("head", "taken"),
    [
        (b"\x93NUMPY\x01\x00", True),
        (b"\x89HDF\r\n\x1a\n", True),
        (pickle.dumps([1.0], protocol=2), True),
        (pickle.dumps({"w": 1.0}, protocol=4), True),
        (pickle.dumps({"w": 1.0}, protocol=5), True),
        (zipped("w.npy"), True),
        (zipped("archive/data.pkl"), True),
        (zipped("metadata.json"), True),
        (zipped("pictures/1.png"), False),
        (b"loss 0.5\n", False),
        (b"", False),
    ],
)
def test_a_suffix_that_says_nothing_leaves_it_to_the_content(head: bytes, taken: bool) -> None:
    assert checkable(["out/weights"], lambda _: head) == (["out/weights"] if taken else [])


def tensor(name: str, numbers: list[float]) -> dict[str, Any]:
    return {**result(numbers)["outputs"][0], "name": name}


def weights(*tensors: dict[str, Any]) -> dict[str, Any]:
    return {"loaded": True, "sha256": "1", "tensors": list(tensors)}


def test_weights_are_compared_by_name() -> None:
    there = weights(tensor("a", [1.0]), tensor("b", [2.0, 3.0]))
    assert against(there, there)["equal"] is True
    changed = against(there, weights(tensor("a", [1.0]), tensor("b", [2.0, 3.5])))
    assert changed["equal"] is False and "1 of 2 tensors differ" in changed["reason"]
    assert "b (by at most 0.5" in changed["reason"]
    lacking = against(there, weights(tensor("a", [1.0])))
    assert lacking["equal"] is False and "b is only there" in lacking["reason"]
    reshaped = against(there, weights(tensor("a", [1.0, 1.0]), tensor("b", [2.0, 3.0])))
    assert "float32 [1] there, float32 [2] here" in reshaped["reason"]


def result(numbers: list[float], **facts: Any) -> dict[str, Any]:
    raw = struct.pack(f"<{len(numbers)}f", *numbers)
    output = {
        "name": "",
        "dtype": "float32",
        "shape": [len(numbers)],
        "sha256": hashlib.sha256(raw).hexdigest(),
    }
    output["values"] = base64.b64encode(raw).decode()
    given = {"name": "x", "dtype": "float32", "shape": [4], "sha256": "0" * 64}
    return {"loaded": True, "sha256": "1", "inputs": [given], "outputs": [output], **facts}


def test_equal_predictions_are_equal() -> None:
    assert against(result([0.5, 0.25]), result([0.5, 0.25]))["equal"] is True


def test_loading_is_not_enough() -> None:
    found = against(result([0.5, 0.25]), result([0.5, 0.375], sha256="2"))
    assert found["equal"] is False and found["equivalent"] is False
    assert found["max_abs"] == 0.125 and found["relative"] == pytest.approx(
        0.125 / (0.5**2 + 0.375**2) ** 0.5
    )
    assert "predicts differently" in found["reason"] and "not the same bytes" in found["reason"]


def test_what_prepares_an_input_is_said_to_transform() -> None:
    there, here = result([0.5]), result([0.75])
    for side in (there, here):
        side["outputs"][0]["name"] = "transform"
    assert "predicts differently" in against(there, here)["reason"], "an output of a model may have that name"
    assert "it loads, but transforms differently" in against(there, {**here, "kind": "pickle"})["reason"]


def test_rounding_is_told_from_difference() -> None:
    found = against(result([0.5]), result([0.5 + 2.0**-24]))
    assert (found["equal"], found["equivalent"]) == (False, True)
    assert "up to rounding" in found["reason"]


@pytest.mark.parametrize(
    "there", [{"loaded": False, "reason": "no memory"}, result([0.5], inputs=[]), result([0.5, 0.5])]
)
def test_results_that_cannot_be_compared_say_so(there: dict[str, Any]) -> None:
    found = against(there, result([0.5]))
    assert not found["equal"] and found["reason"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
_BITS = st.binary(max_size=24).map(lambda raw: base64.b64encode(raw).decode()) | st.text(max_size=8)
_ARRAYS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["", "a"]),
            "dtype": st.sampled_from(["float64", "float16", "float32", "int64", "bool", "string"]),
            "sha256": st.sampled_from(["0", "1"]),
            "shape": st.lists(st.integers(-1, 3), max_size=2),
        },
        optional={"values": st.none() | _BITS},
    ),
    max_size=2,
)
_CLAIMS = st.fixed_dictionaries(
    {"loaded": st.booleans()},
    optional={"inputs": _ARRAYS, "outputs": _ARRAYS, "tensors": _ARRAYS, "reason": _JSON, "kind": _JSON},
)


@given(_CLAIMS, _CLAIMS)
def test_whatever_a_machine_claims_is_compared(there: Any, here: Any) -> None:
    ours, theirs = sound(here), sound(there)
    if ours and theirs:
        found = against(theirs, ours)
        assert found["equal"] in (True, False, None)
        assert all(math.isfinite(found.get(name) or 0.0) for name in ("max_abs", "relative"))


def test_the_largest_numbers_have_a_distance() -> None:
    huge = [_doubles(sign * sys.float_info.max) for sign in (1, -1)]
    found = against(huge[0], huge[1])
    assert found["equivalent"] is False and found["max_abs"] == sys.float_info.max


def _doubles(value: float) -> dict[str, Any]:
    raw = struct.pack("<d", value)
    packed = {"dtype": "float64", "sha256": str(value), "values": base64.b64encode(raw).decode()}
    told = result([0.5])
    return {**told, "outputs": [{**told["outputs"][0], "shape": [1], **packed}]}
