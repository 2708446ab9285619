"""Whether the outputs of two runs are the same: by their bytes, or as archives by every byte in them."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest

from orchestrator.model import RunRecord
from orchestrator.model.files import sha256_of
from orchestrator.runs.outputs import Sameness, compare_outputs


def run(folder: Path, **members: bytes) -> RunRecord:
    folder.mkdir()
    with zipfile.ZipFile(folder / "m.keras", "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, len(folder.name), 0, 0, 0)), content)
    return record(folder)


def record(folder: Path) -> RunRecord:
    artifact = {"path": "m.keras", "sha256": sha256_of(folder / "m.keras")}
    done = {"code": 0, "signal": None, "reason": "completed"}
    return RunRecord(folder.name, folder, done, artifacts=[artifact])  # type: ignore[arg-type]


def found(one: RunRecord, other: RunRecord) -> Sameness:
    (compared,) = compare_outputs(one, other)
    return compared.found


def test_times_in_an_archive_are_no_difference(tmp_path: Path) -> None:
    one, other = run(tmp_path / "a", weights=b"1"), run(tmp_path / "bb", weights=b"1")
    assert found(one, one) == Sameness.BYTES
    assert found(one, other) == Sameness.CONTENT
    assert found(one, run(tmp_path / "ccc", weights=b"2")) == Sameness.DIFFERENT
    assert found(one, run(tmp_path / "dddd", weights=b"1", more=b"")) == Sameness.DIFFERENT


def test_files_for_tensorboard_are_not_compared(tmp_path: Path) -> None:
    one, other = run(tmp_path / "a", weights=b"1"), run(tmp_path / "bb", weights=b"1")
    for record_, name in ((one, "events.out.tfevents.1.host"), (other, "events.out.tfevents.2.host")):
        record_.artifacts.append({"path": f"outputs/logs/{name}", "sha256": "0", "bytes": 1})
    assert found(one, other) == Sameness.CONTENT


def test_when_a_model_was_saved_is_no_difference(tmp_path: Path) -> None:
    def saved(day: str, version: str = "3") -> bytes:
        return json.dumps({"date_saved": day, "keras_version": version}).encode()

    runs = [
        run(tmp_path / folder, **{"metadata.json": note})
        for folder, note in (("a", saved("mon")), ("bb", saved("tue")), ("ccc", saved("tue", "2")))
    ]
    assert found(runs[0], runs[1]) == Sameness.CONTENT
    assert found(runs[0], runs[2]) == Sameness.DIFFERENT


def model(folder: Path, config: object, *, weights: bytes = b"w", day: str = "mon") -> RunRecord:
    """A Keras archive. `config`: of the model, or the text of its member."""
    text = config if isinstance(config, str) else json.dumps(config)
    note = json.dumps({"keras_version": "3.15.1", "date_saved": day})
    members = {"metadata.json": note, "config.json": text, "model.weights.h5": weights.decode("latin-1")}
    return run(folder, **{name: each.encode() for name, each in members.items()})


def layers(*ids: int, **more: object) -> dict[str, object]:
    return {"config": {"layers": [{"class_name": "Dense", "shared_object_id": each} for each in ids]}, **more}


def test_addresses_of_the_process_that_saved_a_model_are_no_difference(tmp_path: Path) -> None:
    one = model(tmp_path / "a", layers(139700592786384, 139700592786000, 139700592786384))
    other = model(tmp_path / "bb", layers(140003, 140001, 140003), day="tue")
    assert found(one, other) == Sameness.CONTENT


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (layers(1, 2, 1), layers(1, 2, 2)),
        (layers(1, 2), layers(1, 1)),
        (layers(1, 2, 3), layers(3, 2, 2)),
        (layers(1), {"config": {"layers": [{"class_name": "Dense"}]}}),
        (layers(1, units=1), layers(1, units=2)),
        (layers(1, units=1), layers(1, units=True)),
        (layers(1, units=1), layers(1, units=1.0)),
        (layers(1, units=1), layers(1, units="1")),
        (layers(1, rate=float("nan")), layers(1, rate="NaN")),
        ('{"rate": 1e998}', '{"rate": 1e999}'),
        ('{"shared_object_id": "a"}', '{"shared_object_id": "b"}'),
        ('{"shared_object_id": 0}', '{"shared_object_id": ["shared", 0]}'),
        ('{"date_saved": "mon"}', '{"date_saved": "tue"}'),
        ('{"units": 1, "units": 2}', '{"units": 2}'),
    ],
)
def test_anything_else_in_a_config_is_a_difference(tmp_path: Path, left: object, right: object) -> None:
    one, other = model(tmp_path / "a", left), model(tmp_path / "bb", right)
    (compared,) = compare_outputs(one, other)
    assert (compared.found, compared.members) == (Sameness.DIFFERENT, ("config.json",))
    assert compared.weights is True


def test_the_members_that_differ_are_named_and_whether_the_weights_do(tmp_path: Path) -> None:
    one = model(tmp_path / "a", layers(1))
    (compared,) = compare_outputs(one, model(tmp_path / "bb", layers(1, units=2), weights=b"x"))
    assert (compared.members, compared.weights) == (("config.json", "model.weights.h5"), False)
    plain = run(tmp_path / "ccc", a=b"1", c=b"3"), run(tmp_path / "dddd", b=b"2", c=b"3")
    (compared,) = compare_outputs(*plain)
    assert (compared.members, compared.weights) == (("a", "b"), None)


@pytest.mark.parametrize("config", ["[" * 100_000, "[" + "0," * 1_000_001 + "0]", "\udc80", "{", "NaN"])
def test_a_config_that_is_no_json_or_too_large_is_compared_by_its_bytes(tmp_path: Path, config: str) -> None:
    one, other = (
        run(tmp_path / name, **{"metadata.json": b"{}", "config.json": text})
        for name, text in (
            ("a", config.encode("latin-1", "replace")),
            ("bb", config.encode("utf-8", "replace")),
        )
    )
    assert found(one, other) == Sameness.CONTENT
    (compared,) = compare_outputs(one, run(tmp_path / "ccc", **{"metadata.json": b"{}", "config.json": b"1"}))
    assert compared.members == ("config.json",)


def test_in_another_archive_json_is_compared_by_its_bytes(tmp_path: Path) -> None:
    one, other = (
        run(tmp_path / name, **{"config.json": json.dumps(layers(number)).encode()})
        for name, number in (("a", 1), ("bb", 2))
    )
    assert found(one, other) == Sameness.DIFFERENT


@pytest.mark.parametrize("damage", ["content", "method", "encrypted"])
def test_an_archive_that_is_damaged_is_no_proof(tmp_path: Path, damage: str) -> None:
    """What an archive's directory says is not believed."""
    one, other = run(tmp_path / "a", weights=b"12345678"), run(tmp_path / "bb", weights=b"12345678")
    raw = bytearray((tmp_path / "bb/m.keras").read_bytes())
    if damage == "content":
        raw[raw.index(b"12345678")] ^= 1
    central = raw.index(b"PK\x01\x02")
    if damage == "method":
        raw[central + 10 : central + 12] = struct.pack("<H", zipfile.ZIP_DEFLATED)
    if damage == "encrypted":
        raw[central + 8] |= 1
    (tmp_path / "bb/m.keras").write_bytes(bytes(raw))
    assert found(one, record(other.folder)) == Sameness.DIFFERENT
