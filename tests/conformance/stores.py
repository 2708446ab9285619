"""The stores under test, each as new."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.storage import Store, open_store

KINDS = ("memory", "file", "file-one-case")


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


_MADE: dict[str, Callable[[pytest.FixtureRequest, Path], Store]] = {
    "memory": _memory,
    "file": _file,
    "file-one-case": _one_case,
}
