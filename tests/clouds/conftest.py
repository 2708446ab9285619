"""Clouds without machines, one of each kind for all files that can share it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


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
    shared_google.settings(denied=[], quotas={}, visible_s=0.05)
