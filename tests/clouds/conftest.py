"""Clouds without machines, one of each kind for all files that can share it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from orchestrator.session.project import Project
    from tests.clouds.failing import Ground


@pytest.fixture(scope="session")
def shared_aws() -> Iterator[Any]:
    pytest.importorskip("boto3")
    pytest.importorskip("moto")
    from tests.clouds.aws import running

    with running(machines=False) as made:
        yield made


@pytest.fixture
def cloud(shared_aws: Any) -> Any:
    """An AWS as new, but for what earlier tests launched."""
    from tests.clouds.aws_asking import as_new

    return as_new(shared_aws)


@pytest.fixture(scope="session")
def shared_google() -> Iterator[Any]:
    from tests.clouds.gcp import running

    with running(machines=False) as made:
        yield made


@pytest.fixture
def google(shared_google: Any) -> Iterator[Any]:
    """Google's clients at a cloud as new, but for what earlier tests made."""
    from tests.clouds.gcp_client import Google

    yield Google(shared_google)
    shared_google.clear_faults()
    shared_google.settings(denied=[], quotas={}, crowded={}, visible_s=0.05)


@pytest.fixture(params=["aws", "gcp"])
def ground(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """Each cloud, with faults by script."""
    from tests.clouds.failing import ground_of

    made = ground_of(request, monkeypatch)
    yield made
    made.calm()


@pytest.fixture
def project(tmp_path: Path, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project on that cloud whose `up` ends where the guest's part begins."""
    from tests.clouds.failing import project_in

    return project_in(tmp_path, ground, monkeypatch)
