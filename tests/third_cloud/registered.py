"""The one line that registers the third cloud, undone after a test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.model import clouds
from tests.third_cloud.service import Service, running


@contextlib.contextmanager
def registered(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Service]:
    """The third cloud, running in `folder`, known to orch, its credentials in the environment."""
    monkeypatch.setitem(clouds.REGISTRY, "third", "tests.third_cloud.traits")
    with running(folder) as service:
        for name, value in service.environment.items():
            monkeypatch.setenv(name, value)
        yield service
