"""The stores under test, each as new."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.storage import Store, open_store

KINDS = ("memory", "file", "file-one-case", "s3", "gs")


def new_store(request: pytest.FixtureRequest, folder: Path) -> Store:
    return _MADE[request.param](request, folder)


def _memory(_request: pytest.FixtureRequest, _folder: Path) -> Store:
    return open_store(f"memory://{os.urandom(6).hex()}")


def _file(_request: pytest.FixtureRequest, folder: Path) -> Store:
    return open_store((folder / "a store").as_uri())


def _one_case(_request: pytest.FixtureRequest, folder: Path) -> Store:
    """As on a file system that takes "A" for "a"."""
    from orchestrator.storage.files import FileStore

    return FileStore(folder / "store", sensitive=False)


def _s3(request: pytest.FixtureRequest, _folder: Path) -> Store:
    cloud = request.getfixturevalue("shared_aws")
    monkeypatch = request.getfixturevalue("monkeypatch")
    for name, value in cloud.env.items():
        monkeypatch.setenv(name, value)
    bucket = f"bucket-{os.urandom(6).hex()}"
    cloud.client("s3").create_bucket(Bucket=bucket)
    return open_store(f"s3://{bucket}/some/prefix")


def _gs(request: pytest.FixtureRequest, _folder: Path) -> Store:
    cloud = request.getfixturevalue("shared_google")
    monkeypatch = request.getfixturevalue("monkeypatch")
    for name, value in cloud.env.items():
        monkeypatch.setenv(name, value)
    from google.cloud import storage

    bucket = f"bucket-{os.urandom(6).hex()}"
    storage.Client().create_bucket(bucket)
    return open_store(f"gs://{bucket}/some/prefix")


_MADE: dict[str, Callable[[pytest.FixtureRequest, Path], Store]] = {
    "memory": _memory,
    "file": _file,
    "file-one-case": _one_case,
    "s3": _s3,
    "gs": _gs,
}
