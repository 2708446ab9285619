"""`down` while another call starts a run on the same machine: one gives way, whatever the order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import OrchError, UsageError
from tests.histories.clients import Verb
from tests.histories.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_STATE_HOME", str(tmp_path / "machines"))
        made = World(tmp_path, patch)
        made.up(0)
        yield made


@pytest.mark.parametrize("first", range(1, 15))
def test_no_lease_is_ended_with_a_run_that_has_just_begun(world: World, first: int) -> None:
    """`down` begins after so many effects of `train`; `train` goes on once the machine was looked for."""
    start = Verb(lambda: world.train(0, "good-1", detach=True))
    end = Verb(lambda: world.down(0))
    started, ended = world.at_once(start, end, [first, 2])
    lease = world.places[0].leases()[0]
    if isinstance(ended, UsageError):
        assert started.exit["reason"] == "running"
        assert lease.open and world.machines(lease.id)
    else:
        assert ended.proven_gone and isinstance(started, OrchError)
        assert not lease.uncollected, "nobody said what became of it"
