"""A command that fetched a run is killed before its machine was told: the next one tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import OrchError
from tests.histories.clients import Killed, Verb
from tests.histories.guest import GuestRun
from tests.histories.world import World
from tests.nightly import sampled

FOLLOWERS: dict[str, Callable[[World], Any]] = {
    "status": lambda world: world.status(0),
    "train of another run": lambda world: world.train(0, "good-2"),
    "pull of another run": lambda world: world.pull(0, "good-2"),
    "the same pull": lambda world: world.pull(0, "good-1"),
    "up": lambda world: world.up(0),
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_STATE_HOME", str(tmp_path / "machines"))
        made = World(tmp_path, patch)
        made.up(0)
        for name in ("good-1", "good-2"):
            made.train(0, name, detach=True, parallel=True)
            runs(made)[name].end()
        yield made


def runs(world: World) -> dict[str, GuestRun]:
    (machine,) = world.cloud.alive()
    return world.guests.runs(machine.id)


def fetched_and_untold(world: World) -> bool:
    (lease,) = world.places[0].open_leases()
    return lease.runs["good-1"].collected and not runs(world)["good-1"].collected


def times_told(world: World) -> int:
    (lease,) = world.places[0].open_leases()
    events = world.places[0].ledger(lease.id).events()
    return sum(event.event == "run.released" and event.data["run_id"] == "good-1" for event in events)


def killed_before_it_told(world: World) -> None:
    """Kill `pull` ever later, until it had noted the run and not told the machine."""
    for effect in range(1, 40):
        came = world.alone(lambda: world.pull(0, "good-1"), effect)
        if fetched_and_untold(world):
            return
        assert isinstance(came, Killed), "no kill left it so"
    pytest.fail("the machine was never reached")


@pytest.mark.parametrize("follower", FOLLOWERS)
def test_the_next_command_tells_the_machine(world: World, follower: str) -> None:
    killed_before_it_told(world)
    FOLLOWERS[follower](world)
    assert not fetched_and_untold(world)
    (lease,) = world.places[0].open_leases()
    assert lease.runs["good-1"].released
    told = times_told(world)
    world.status(0)
    assert times_told(world) == told > 0


@pytest.mark.parametrize("first", range(1, 40, 2))
@pytest.mark.parametrize("second", sampled([1, 3, 5], [3].__contains__))
def test_a_new_attempt_is_never_taken_for_fetched(world: World, first: int, second: int) -> None:
    """`status` comes at any moment of a `train` that makes a new attempt of the run on the same machine."""
    name = "bad-1"
    world.train(0, name, detach=True, parallel=True)
    runs(world)[name].end()
    for effect in range(1, 40):
        world.alone(lambda: world.pull(0, name), effect)
        if runs(world)[name].fetched and world.places[0].open_leases()[0].runs[name].collected:
            break
    again = Verb(lambda: world.train(0, name, detach=True, retry_failed=True, parallel=True))
    came, _ = world.at_once(again, Verb(lambda: world.status(0)), [first, second, 3, 2])
    assert not isinstance(came, OrchError)
    assert not runs(world)[name].collected, "its results would not keep the machine on"


def test_a_ledger_with_a_line_that_cannot_be_read_tells_nothing(world: World) -> None:
    """The line may be that of a new attempt with the same id."""
    killed_before_it_told(world)
    (lease,) = world.places[0].open_leases()
    with world.places[0].ledger(lease.id).path.open("ab") as file:
        file.write(b"\xff\xfe\n")
    world.status(0)
    assert not runs(world)["good-1"].collected
