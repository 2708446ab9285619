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
