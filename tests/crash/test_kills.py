"""Whatever a verb was doing when it was killed: the same verb finishes it, and `down` leaves nothing.

Some points of each verb here, and of `up`, `train` and `down` by themselves at night; all points, on all
clouds, by `scripts/crashtest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.image_sweeps import IMAGE_SWEEPS
from tests.crash.kill import Kill, spread
from tests.crash.rig import Rig, rig
from tests.crash.sweep import OF_MEMORY, lives_at, sweep, table, verbs_of
from tests.nightly import sampled

POINTS = 3

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as made:
        yield made


def test_up_and_down_that_were_killed_leave_nothing(project: Rig) -> None:
    require_sound(list(lives_at(project, POINTS)))


@pytest.mark.parametrize(
    "verb",
    sampled(
        (verb for verb in verbs_of("memory") if verb not in OF_MEMORY),
        {"up, only down", "pull", "run"}.__contains__,
    ),
)
def test_a_verb_that_was_killed_is_finished_by_itself_and_leaves_nothing(project: Rig, verb: str) -> None:
    kills = list(sweep(project, verb, POINTS))
    require_sound(kills)
    print(table(kills))


def require_sound(kills: list[Kill]) -> None:
    assert sum(kill.killed for kill in kills) >= POINTS / 2, "the process was killed in earnest"
    assert all(kill.sound for kill in kills), [kill for kill in kills if not kill.sound]


def test_a_run_whose_machine_failed_and_whose_caller_died_goes_on_as_one_run(project: Rig) -> None:
    """It dies while it sets the first attempt aside, and while it begins the log of the second."""
    kills = list(sweep(project, "retry", [r"os.rename .*/attempts/part", r"os.rename .*\.output\.log\."]))
    assert [kill.killed for kill in kills] == [True, True]
    assert all(kill.sound for kill in kills), kills


def test_what_was_not_whole_goes_with_the_next_down(project: Rig) -> None:
    """`up` is killed before its key or another file has its name; `down` has nothing to end, and tidies."""
    cut = [rf"os.rename .*/\.{name}\." for name in (r"\.gitignore", "identity")]
    kills = list(sweep(project, "up, only down", cut))
    assert [kill.killed for kill in kills] == [True] * len(cut)
    assert all(kill.sound for kill in kills), kills


def test_a_down_that_is_killed_late_leaves_no_key(project: Rig) -> None:
    """The machine is gone by then; the next `down` still has a lease to close."""
    (kill,) = sweep(project, "down", ["os.remove .*/identity"])
    assert kill.killed
    assert kill.sound, kill


@pytest.mark.machine
def test_the_same_of_real_machines(tmp_path: Path) -> None:
    with rig(tmp_path, "local") as project:
        require_sound(list(lives_at(project, 2)))


@pytest.mark.machine
@pytest.mark.nightly
@pytest.mark.parametrize("verb", ["up", "train", "down"])
def test_each_verb_on_real_machines(tmp_path: Path, verb: str) -> None:
    with rig(tmp_path, "local") as project:
        require_sound(list(sweep(project, verb, POINTS)))


@pytest.mark.machine
def test_an_image_that_is_not_whole_goes_with_the_next_look_at_images(tmp_path: Path) -> None:
    """The bake is killed before the copy of the machine's files has its name, and nobody repeats it."""
    with rig(tmp_path, "local") as project:
        (kill,) = sweep(project, "image bake, only down", [r"os.rename .*/images/\.new-"])
    assert kill.killed
    assert kill.sound, kill


@pytest.mark.machine
@pytest.mark.nightly
@pytest.mark.parametrize("verb", IMAGE_SWEEPS)
def test_images_of_real_machines(tmp_path: Path, verb: str) -> None:
    with rig(tmp_path, "local") as project:
        require_sound(list(sweep(project, verb, POINTS)))


def test_points_are_spread_over_the_whole_verb() -> None:
    assert spread(5, 9) == [1, 2, 3, 4, 5]
    assert spread(100, 5) == [1, 26, 51, 75, 100]
