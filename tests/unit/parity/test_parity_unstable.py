"""A script that differs from itself: what its generators tell before anything is imposed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.model import Tried, Verdict
from orchestrator.parity.explain import (
    GENERATORS,
    LISTINGS,
    OPERATIONS,
    OWN_SEEDS,
    SEEDS,
    Remedy,
    Unseeded,
    besides,
    describe_change,
    generators,
    unstable,
)
from orchestrator.parity.intervention import Intervention
from orchestrator.parity.ladder import compare_stages
from orchestrator.parity.recording import Recording, read
from orchestrator.parity.repeat_statistics import repeats_needed
from orchestrator.replay.baseline import REMEDIES, baseline, hash_order, rank_remedies, recheck_stability
from orchestrator.replay.replay import Replay
from orchestrator.replay.replayer import Replayer
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
    ordered = rank_remedies(*two(tmp_path, one, other, change))
    assert ordered[0][1] == (first,)
    seeded = first in (GENERATORS, OPERATIONS)
    useful = [each for each in REMEDIES if not seeded or not {SEEDS, OWN_SEEDS} & set(each[1])]
    assert sorted(map(repr, ordered)) == sorted(map(repr, useful)), (
        "and everything else that can act after it"
    )


def test_files_in_another_order_each_time_are_listed_so_or_shuffled(tmp_path: Path) -> None:
    names = [{"name": n, "path": f"/{n}", "bytes": 1, "sha256": n} for n in ("1.csv", "2.csv")]
    one, other = (
        {**ENVIRONMENT, "rng": SEEDED, "files": {"list": listed}} for listed in (names, names[::-1])
    )
    a = read(Run([step()], environment=one).write(tmp_path / "a"))
    b = read(Run([step(**OTHERS)], environment=other).write(tmp_path / "b"))
    assert [remedies for _, remedies in rank_remedies(a, b)][:2] == [(GENERATORS,), (LISTINGS,)]


@pytest.mark.parametrize(
    ("remedies", "suspected", "said"),
    [
        ((SEEDS,), (), "Confirmed: nothing seeds the data"),
        ((), (OWN_SEEDS,), "Suspected: the seed itself is different in each run"),
        ((), (), "Suspected: randomness that none of the usual seeds fixes."),
        (
            (generators([Unseeded("random.Random", "train.py:3")]),),
            (),
            "without a seed: random.Random() in train.py:3.",
        ),
    ],
)
def test_what_is_said(tmp_path: Path, remedies: Any, suspected: Any, said: str) -> None:
    a, b = two(tmp_path, {}, {}, OTHERS)
    finding = compare_stages(a, b).finding
    assert finding is not None
    found = unstable(finding, remedies, 1, 5, suspected=suspected)
    assert (found.verdict, found.confirmed) == ("UNSTABLE", bool(remedies))
    assert said in str(found.cause) and said in found.detail
    assert bool(found.fix) == bool(remedies or suspected)


def test_a_file_name_may_hold_braces() -> None:
    found = generators([Unseeded("random.Random", "{train}.py:3"), Unseeded("random.Random", "b.py:1")])
    assert describe_change([found], "batch").endswith(
        "random.Random() in {train}.py:3, random.Random() in b.py:1"
    )


class Drawn:
    """Runs of a script: `as_it_is` and `mended` (by the plan of REMEDIES that mends it) are the results of
    the first, second, … repetition; the last goes on for ever. Another remedy changes nothing."""

    forks = False
    original = None
    always = Intervention()

    def __init__(
        self,
        as_it_is: Sequence[Recording],
        mends: Mapping[str, object] = {},
        mended: Sequence[Recording] = (),
    ) -> None:
        self._as_it_is, self._mends, self._mended = as_it_is, mends, mended
        self.asked: list[Intervention] = []

    def run(self, imposed: Intervention, until: float, *, again: int = 0) -> Replay:
        del until
        self.asked.append(imposed)
        results = self._mended if imposed.plan == self._mends and self._mended else self._as_it_is
        return Replay(results[min(again, len(results) - 1)], 1.0)

    def estimate(self, imposed: Intervention, again: int = 0) -> float:
        del imposed, again
        return 1.0


def results(tmp_path: Path, facts: dict[str, Any], orders: str) -> list[Recording]:
    """A recording for each letter; equal letters, equal recordings."""
    return [
        read(
            Run(
                [step(batch_data_0=[float(ord(letter)), 1.0])], environment={**ENVIRONMENT, "rng": facts}
            ).write(tmp_path / letter)
        )
        for letter in orders
    ]


def far() -> float:
    return time.monotonic() + 1000.0


def test_a_script_that_was_the_same_by_luck_is_found_out(tmp_path: Path) -> None:
    a, b = two(tmp_path, SEEDED, SEEDED, OTHERS)
    found = recheck_stability(Replay(a, 1.0), cast(Replayer, Drawn([a, b])), far())
    assert found is not None and (found.verdict, found.confirmed) == ("UNSTABLE", False)
    assert recheck_stability(Replay(a, 1.0), cast(Replayer, Drawn([a, a, b])), far()) is None
    assert recheck_stability(Replay(a, 1.0), cast(Replayer, Drawn([a, a, b])), far(), most=2) is not None


def test_a_remedy_that_holds_in_every_run_is_confirmed_with_their_number(tmp_path: Path) -> None:
    a, b, c, mended = results(tmp_path, {}, "abcm")
    runs = Drawn([a, b, c], {"seed": 1}, [mended])
    found = baseline(results(tmp_path, {}, "z")[0], cast(Replayer, runs), far()).verdict
    assert found is not None and (found.verdict, found.confirmed) == ("UNSTABLE", True)
    assert found.cause == "Confirmed: nothing seeds the data (shuffle, augmentation, generated records)."
    (remedy,) = [each for each in found.tried if each.outcome == "confirmed"]
    assert (
        remedy.why == "3 runs with the fix are bitwise identical; 3 runs without it have 3 different results"
    )
    assert runs.asked.count(Intervention(plan={"seed": 1})) >= 3


@pytest.mark.parametrize("drawn", ["mmn", "mmmn"])
def test_two_seeded_runs_that_agree_by_luck_confirm_nothing(tmp_path: Path, drawn: str) -> None:
    """A race with few outcomes: two runs in three agree, whatever is imposed."""
    runs = Drawn(results(tmp_path, {}, "aba"), {"seed": 1}, results(tmp_path, {}, drawn))
    found = baseline(results(tmp_path, {}, "z")[0], cast(Replayer, runs), far()).verdict
    assert found is not None and (found.verdict, found.confirmed) == ("UNSTABLE", False)
    assert "nothing seeds" not in str(found.cause)
    assert all(each.outcome != "confirmed" for each in found.tried)


def test_where_seeds_are_set_alike_a_race_is_no_lack_of_seeds(tmp_path: Path) -> None:
    """The files come in another order in each run, and nothing that can be imposed mends that."""
    names = [{"name": n, "path": f"/{n}", "bytes": 1, "sha256": n} for n in ("1.csv", "2.csv")]
    recordings = [
        read(
            Run(
                [step(batch_data_0=numbers)],
                environment={**ENVIRONMENT, "rng": SEEDED, "files": {"list": listed}},
            ).write(tmp_path / str(len(numbers)) / str(numbers[0]))
        )
        for listed, numbers in ((names, [1.0, 2.0]), (names[::-1], [2.0, 1.0]))
    ]
    a, b = recordings
    runs = Drawn([a, b, a, b])
    found = baseline(b, cast(Replayer, runs), far()).verdict
    assert found is not None and (found.verdict, found.confirmed) == ("UNSTABLE", False)
    assert str(found.cause).startswith("Suspected: the order in which threads or processes finish")
    assert not any("seed" in imposed.plan for imposed in runs.asked)


def test_too_little_time_to_rule_out_luck_is_a_suspicion(tmp_path: Path) -> None:
    a, b, mended = results(tmp_path, {}, "abm")
    runs = Drawn([a, b], {"seed": 1}, [mended])
    found = baseline(results(tmp_path, {}, "z")[0], cast(Replayer, runs), time.monotonic()).verdict
    assert found is not None and not found.confirmed
    assert str(found.cause).startswith("Suspected: nothing seeds the data")
    assert found.tried[0].outcome == "not tried"


@pytest.mark.parametrize(
    ("seen", "tried", "wanted"), [("abc", 0, 3), ("abc", 1, 4), ("aba", 0, 5), ("ab", 0, 4), ("aabb", 0, 5)]
)
def test_the_more_often_runs_agree_anyway_the_more_must_agree(seen: str, tried: int, wanted: int) -> None:
    assert repeats_needed([ord(letter) for letter in seen], tried) == wanted


def _explained(topic: str, confirmed: bool = True) -> Verdict:
    """The verdict on two sides whose first difference is one of `topic`."""
    words = f"{topic} of A is not that of B"
    outcome = "confirmed" if confirmed else "cleared"
    tried = (Tried(words, outcome, "", "difference", topic),)
    cause = f"{'Confirmed' if confirmed else 'Suspected'}: {words}."
    return Verdict(
        "DIVERGENT", cause=cause, because=words, confirmed=confirmed, fix="Make them the same.", tried=tried
    )


def _unseeded(tmp_path: Path) -> Verdict:
    finding = compare_stages(*two(tmp_path, {}, {}, OTHERS)).finding
    assert finding is not None
    return unstable(finding, (SEEDS,), 1, 3)


@pytest.mark.parametrize(
    "topic, verdict",
    [("data", "DIVERGENT"), ("source", "DIVERGENT"), ("order", "UNSTABLE"), ("cores", "UNSTABLE")],
)
def test_what_came_before_a_script_differed_from_itself_hides_nothing(
    tmp_path: Path, topic: str, verdict: str
) -> None:
    both = besides(_explained(topic), _unseeded(tmp_path))
    assert both.verdict == verdict
    assert both.cause is not None and f"{topic} of A is not that of B" in both.cause
    assert (
        "seeds" in both.cause
        and "Make them the same." in str(both.fix)
        and "set_random_seed" in str(both.fix)
    )


def test_an_unexplained_difference_of_a_script_that_differs_from_itself_is_unstable(tmp_path: Path) -> None:
    itself = _unseeded(tmp_path)
    assert besides(_explained("data", confirmed=False), itself) == itself


class Hashing(Drawn):
    """The order of a set: the hash seed decides, and forks have one in common."""

    def __init__(self, usual: Recording, by_seed: Mapping[str, Sequence[Recording]]) -> None:
        super().__init__([usual])
        self._by_seed = by_seed

    def run(self, imposed: Intervention, until: float, *, again: int = 0) -> Replay:
        seed = imposed.env.get("PYTHONHASHSEED")
        if seed is None:
            return super().run(imposed, until, again=again)
        results = self._by_seed[seed]
        return Replay(results[min(again, len(results) - 1)], 1.0)


@pytest.mark.parametrize(("first", "confirmed"), [("b", True), ("bd", False)])
def test_hashes_are_accused_only_where_one_seed_gives_one_result(
    tmp_path: Path, first: str, confirmed: bool
) -> None:
    z, a, c = results(tmp_path, {}, "zac")
    runs = Hashing(a, {"1": results(tmp_path, {}, first), "2": [c]})
    found = baseline(z, cast(Replayer, runs), far())
    assert (found.verdict is not None and found.verdict.confirmed) == confirmed
    if not confirmed:
        assert "not the one that was recorded" in found.obstacle


def test_a_set_of_few_has_one_order_with_several_seeds(tmp_path: Path) -> None:
    (mine,) = results(tmp_path, {}, "a")
    same, other = results(tmp_path / "runs", {}, "bc")
    runs = Hashing(mine, {"1": [same], "2": [same], "3": [same], "4": [other]})
    found = hash_order(mine, cast(Replayer, runs), far())
    assert found is not None and found.verdict is not None
    assert (found.verdict.verdict, found.verdict.confirmed) == ("UNSTABLE", True)
    stable = Hashing(mine, {seed: [same] for seed in "1234"})
    assert hash_order(mine, cast(Replayer, stable), far()) is None
