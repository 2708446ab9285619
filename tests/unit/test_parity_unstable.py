"""A script that differs from itself: what its generators tell before anything is imposed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.api.confirm_baseline import REMEDIES, likely, restless
from orchestrator.api.confirm_runs import Runs, Trial
from orchestrator.parity.explain import (
    GENERATORS,
    LISTINGS,
    OPERATIONS,
    OWN_SEEDS,
    SEEDS,
    Remedy,
    generators,
    unstable,
)
from orchestrator.parity.imposed import Imposed
from orchestrator.parity.ladder import climb
from orchestrator.parity.recording import Recording, read
from tests.unit.parity_runs import ENVIRONMENT, Run, step

SEEDED = {"tensorflow_seed": 7, "keras_seed": 7, "python": "p", "numpy": "n"}
OTHERS = {"batch_data_0": [9.0, 8.0, 7.0, 6.0]}
ROUNDED = {"gradient_a_kernel": [0.5, -0.5, 1.0 + 2.0**-23]}


def two(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], change: dict[str, list[float]]
) -> list[Recording]:
    """Two runs of a script: their generators before the first step, and what changes."""
    runs = (
        Run([step()], environment={**ENVIRONMENT, "rng": one}),
        Run([step(**change)], environment={**ENVIRONMENT, "rng": other}),
    )
    return [read(run.write(tmp_path / str(number))) for number, run in enumerate(runs)]


@pytest.mark.parametrize(
    ("one", "other", "change", "first"),
    [
        ({}, {}, OTHERS, SEEDS),
        ({**SEEDED, "tensorflow_seed": None}, {**SEEDED, "tensorflow_seed": None}, OTHERS, SEEDS),
        (SEEDED, {**SEEDED, "python": "q"}, OTHERS, SEEDS),
        (SEEDED, {**SEEDED, "tensorflow_seed": 8, "keras_seed": 8}, OTHERS, OWN_SEEDS),
        (SEEDED, SEEDED, OTHERS, GENERATORS),
        (SEEDED, SEEDED, ROUNDED, OPERATIONS),
    ],
)
def test_what_is_tried_first(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], change: Any, first: Remedy
) -> None:
    ordered = likely(*two(tmp_path, one, other, change))
    assert ordered[0][1] == (first,)
    assert sorted(map(repr, ordered)) == sorted(map(repr, REMEDIES)), "and everything else after it"


def test_files_in_another_order_each_time_are_listed_so_or_shuffled(tmp_path: Path) -> None:
    names = [{"name": n, "path": f"/{n}", "bytes": 1, "sha256": n} for n in ("1.csv", "2.csv")]
    one, other = (
        {**ENVIRONMENT, "rng": SEEDED, "files": {"list": listed}} for listed in (names, names[::-1])
    )
    a = read(Run([step()], environment=one).write(tmp_path / "a"))
    b = read(Run([step(**OTHERS)], environment=other).write(tmp_path / "b"))
    assert [remedies for _, remedies in likely(a, b)][:2] == [(GENERATORS,), (LISTINGS,)]


@pytest.mark.parametrize(
    ("remedies", "suspected", "said"),
    [
        ((SEEDS,), (), "Confirmed: nothing seeds the data"),
        ((), (OWN_SEEDS,), "Suspected: the seed itself is another one in each run"),
        ((), (), "Suspected: randomness that none of the usual seeds fixes."),
        (
            (generators(["random.Random() in train.py:3"]),),
            (),
            "without a seed: random.Random() in train.py:3.",
        ),
    ],
)
def test_what_is_said(tmp_path: Path, remedies: Any, suspected: Any, said: str) -> None:
    a, b = two(tmp_path, {}, {}, OTHERS)
    finding = climb(a, b).finding
    assert finding is not None
    found = unstable(finding, remedies, 1, 5, suspected=suspected)
    assert (found.verdict, found.confirmed) == ("UNSTABLE", bool(remedies))
    assert said in str(found.cause) and said in found.detail
    assert bool(found.fix) == bool(remedies or suspected)


class Twice:
    """Runs of which the first repetition is one recording, and the next the other."""

    def __init__(self, *recordings: Recording) -> None:
        self._recordings = recordings

    def run(self, imposed: Imposed, until: float, *, again: int = 0) -> Trial:
        assert imposed == Imposed() and until > 0
        return Trial(self._recordings[again], 1.0)


def test_a_script_that_was_the_same_by_luck_is_found_out(tmp_path: Path) -> None:
    a, b = two(tmp_path, SEEDED, SEEDED, OTHERS)
    found = restless(Trial(a, 1.0), cast(Runs, Twice(a, b)), 1.0)
    assert found is not None and (found.verdict, found.confirmed) == ("UNSTABLE", False)
    assert restless(Trial(a, 1.0), cast(Runs, Twice(a, a)), 1.0) is None
