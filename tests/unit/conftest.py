"""What several files of unit tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from orchestrator.model import Agent


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """The runtime in a folder of its own; its runs end with the test."""
    from tests.unit.job_runs import agent_in

    with agent_in(tmp_path / "base") as made:
        yield made
