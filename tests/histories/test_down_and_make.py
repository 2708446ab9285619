"""`down` while another call makes a machine for the same lease: none is left, or it is one that has its key.

Either may be killed at any effect. Then one more `down` leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import Busy, OrchError
from tests.histories.clients import Verb
from tests.histories.promises import Promises
from tests.histories.world import World
from tests.nightly import sampled

ENDS: dict[str, Callable[[World], Any]] = {
    "down": lambda world: world.down(0),
    "down --discard": lambda world: world.down(0, discard=True),
    "down --all from the clone": lambda world: world.down_all(1, discard=True),
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_STATE_HOME", str(tmp_path / "machines"))
        yield World(tmp_path, patch)


def at_once(world: World, make: Verb, end: Verb, switches: list[int]) -> tuple[Any, Any]:
    """Both, with what must hold after it, and after one more `down`."""
    came = world.at_once(make, end, switches)
    Promises(world).hold()
    world.down(0, discard=True)
    assert not world.cloud.alive()
    assert not world.places[0].open_leases()
    assert not list(world.places[0].state.glob("*/identity")), "a key was left"
    return came


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("first", range(1, 13))
@pytest.mark.parametrize("second", sampled([2, 4, 6], [4].__contains__))
def test_no_machine_is_left_without_its_key(world: World, end: str, first: int, second: int) -> None:
    """`down` begins after `first` effects of `up`, which goes on after `second` of `down`."""
    make, stop = Verb(lambda: world.up(0)), Verb(lambda: ENDS[end](world))
    made, ended = at_once(world, make, stop, [first, second])
    assert not isinstance(ended, OrchError)
    if isinstance(made, OrchError):
        assert made.next_command
        assert "nothing costs" in (made.exists or "").lower()


@pytest.mark.parametrize("first", range(1, 16))
def test_a_next_offer_is_not_taken_for_a_lease_that_was_ended(world: World, first: int) -> None:
    """The first zone has none left, so `up` has a moment without anything made or asked for."""
    world.cloud.sell_out("small", "r1-a")
    at_once(world, Verb(lambda: world.up(0)), Verb(lambda: world.down(0)), [first, 20])


@pytest.mark.parametrize("killed", ["up", "down"])
@pytest.mark.parametrize("effect", range(1, 11))
@pytest.mark.parametrize("first", sampled([2, 3, 4, 6], [3].__contains__))
def test_either_may_be_killed(world: World, killed: str, effect: int, first: int) -> None:
    make = Verb(lambda: world.up(0), effect if killed == "up" else None)
    stop = Verb(lambda: world.down(0), effect if killed == "down" else None)
    at_once(world, make, stop, [first, 3])


def test_run_says_that_its_lease_was_ended(world: World) -> None:
    """Between two offers."""
    world.cloud.sell_out("small", "r1-a")
    make = Verb(lambda: world.run(0, "good-1"))
    made, ended = at_once(world, make, Verb(lambda: world.down(0)), [9, 20])
    assert ended.proven_gone
    assert isinstance(made, Busy) and "was ended by another call" in made.message
    assert made.exit_code == 15
