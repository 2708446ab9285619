"""Files that break already what tells their kind: an answer each, and the process goes on."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.runtime.modelcheck.inside import check


def archive(metadata: bytes = b"{}") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("metadata.json", metadata)
        file.writestr("config.json", b"{}")
        file.writestr("model.weights.h5", b"")
    return out.getvalue()


def changed(at: int, value: bytes) -> bytes:
    """An archive with other bytes in every header of a member: `at` counts from the flags."""
    raw = bytearray(archive())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = raw.find(mark)
        while place >= 0:
            raw[place + flags + at : place + flags + at + len(value)] = value
            place = raw.find(mark, place + 4)
    return bytes(raw)


def shards(folder: Path) -> Path:
    (folder / "ckpt.index").write_bytes(b"x")
    (folder / "ckpt.data-00000-of-many").write_bytes(b"x")
    return folder / "ckpt"


def keras(content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / "model.keras").write_bytes(content)
        return folder / "model.keras"

    return write


def unreadable_name(folder: Path) -> Path:
    return folder / "model\0.keras"


HOSTILE: dict[str, Callable[[Path], Path]] = {
    "encrypted": keras(changed(0, b"\x01\x00")),
    "a compression that nobody knows": keras(changed(2, b"\x63\x00")),
    "metadata nested without end": keras(archive(b"[" * 200_000)),
    "metadata that is a list": keras(archive(b"[]")),
    "metadata with a huge number": keras(archive(b'{"keras_version": ' + b"9" * 5000 + b"}")),
    "shards without a number": shards,
    "a name that no file has": unreadable_name,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_it_has_an_answer(tmp_path: Path, what: str) -> None:
    found = check(HOSTILE[what](tmp_path))
    assert found["loaded"] is False and found["reason"] and found["way_out"]
    json.dumps(found)
