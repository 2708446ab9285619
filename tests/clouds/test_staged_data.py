"""Data of this computer in a store of both emulated clouds: put there once, fetched by every machine."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.errors import UsageError
from orchestrator.model import store_keys
from orchestrator.profile import load
from orchestrator.storage import open_store
from tests.clouds.signing import new_bucket
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

SCRIPT = """
import os, pathlib
top = pathlib.Path("images")
found = sorted((str(p.relative_to(top)), p.read_bytes(), p.stat().st_mode & 0o100) for p in top.rglob("*")
               if p.is_file())
pathlib.Path("sum.txt").write_text(repr(found))
"""


@pytest.fixture(params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    return new_bucket(request, monkeypatch, tmp_path)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the data whose bytes went through this computer's connection to the machine."""
    paths: list[str] = []
    pushing = importlib.import_module("orchestrator.sync.push")
    original = pushing._send_bodies

    def noted(talk: Any, scan: Any, needed: Any, name: str, progress: Any) -> None:
        paths.extend(entry.path for entry in needed if name.startswith("data-"))
        original(talk, scan, needed, name, progress)

    monkeypatch.setattr(pushing, "_send_bodies", noted)
    return paths


def project(folder: Path, bucket: str, source: str = "images") -> Path:
    (folder / "images/ü").mkdir(parents=True)
    for name, content in {
        "ü/one.bin": b"one" * 99_999,
        "two.bin": b"two",
        "same.bin": b"two",
        "no": b"",
    }.items():
        (folder / "images" / name).write_bytes(content)
    (folder / "images/two.bin").chmod(0o755)
    (folder / "images/link").symlink_to("two.bin")
    more = f"store: {bucket}/p\ndata:\n  - source: {source}\n    stage: true\n"
    return here_cloud.project(folder, SCRIPT, more=more)


def train(folder: Path, run_id: str) -> tuple[str, str]:
    """What the run read, and the digest of its data."""
    record = orch.train(run_id=run_id, folder=folder)
    assert record.data is not None
    return (folder / f"runs/{run_id}/outputs/sum.txt").read_text(), str(record.data["digest"])


@pytest.mark.usefixtures("cloud")
def test_a_second_machine_gets_nothing_through_this_computer(
    bucket: str, sent: list[str], tmp_path: Path
) -> None:
    folder, store = tmp_path / "p", open_store(f"{bucket}/p")
    profile = project(folder, bucket)
    orch.up(profile, folder=folder)
    first = train(folder, "one")
    assert "('ü/one.bin'" in first[0]
    blobs = {each.key: each.version for each in store.list("blobs/")}
    assert len(blobs) == 2
    orch.down(folder=folder)
    orch.up(profile, folder=folder)
    assert train(folder, "two") == first
    assert sent in ([], ["no"], ["no", "no"]), "what is empty is not worth a link"
    assert {each.key: each.version for each in store.list("blobs/")} == blobs, "nothing is put twice"
    (folder / "images/two.bin").write_bytes(b"TWO")
    assert "b'TWO'" in train(folder, "three")[0]
    assert "two.bin" in sent
    orch.down(folder=folder)


@pytest.mark.usefixtures("cloud")
def test_what_the_store_damaged_comes_from_here_and_is_put_there_anew(
    bucket: str, sent: list[str], tmp_path: Path
) -> None:
    folder, store = tmp_path / "p", open_store(f"{bucket}/p")
    profile = project(folder, bucket)
    orch.up(profile, folder=folder)
    first = train(folder, "one")
    orch.down(folder=folder)
    key = max(store.list("blobs/"), key=lambda each: each.size).key
    store.put(key, b"x" * (3 * 99_999))
    orch.up(profile, folder=folder)
    assert train(folder, "two") == first
    assert "ü/one.bin" in sent
    assert store.head(key) is None
    orch.down(folder=folder)


@pytest.mark.usefixtures("cloud")
def test_one_file_is_staged_too(bucket: str, sent: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "p"
    profile = project(folder, bucket, "images/ü/one.bin")
    (folder / "train.py").write_text("open('n', 'w').write(str(len(open('images/ü/one.bin').read())))")
    orch.up(profile, folder=folder)
    orch.train(run_id="one", folder=folder)
    assert (folder / "runs/one/outputs/n").read_text() == str(3 * 99_999)
    assert sent == []
    orch.down(folder=folder)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("data:\n  - source: images\n    stage: true\n", "needs a store that machines reach"),
        ("store: file:///tmp/x\ndata:\n  - source: images\n    stage: true\n", "needs a store"),
        (
            "store: s3://my-bucket\ndata:\n  - source: s3://my-bucket/images\n    stage: true\n",
            "in a bucket already",
        ),
    ],
)
def test_what_cannot_be_staged_is_refused_with_its_line(tmp_path: Path, lines: str, words: str) -> None:
    path = here_cloud.project(tmp_path / "p", SCRIPT, more=lines)
    with pytest.raises(UsageError, match=words):
        load(path)


def test_a_blob_lies_by_its_content() -> None:
    assert store_keys.blob("ab" * 32).startswith("blobs/sha256/ab/")
