"""The search for causes, on runs that are computed: which of many differences act is known beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.model import Silent, Verdict
from orchestrator.parity import judge
from orchestrator.parity.intervention import Candidate, Intervention, Other
from orchestrator.parity.ladder import compare_stages
from orchestrator.parity.recording import Recording, read
from orchestrator.replay.replay import Replay
from orchestrator.replay.replayer import Replayer
from orchestrator.replay.search import Search
from orchestrator.replay.sides import Clock, Sides
from tests.unit.parity_runs import ENVIRONMENT, Run, step

Script = Callable[[Mapping[str, str | None]], dict[str, list[float]]]
"""A training: from its variables to the values that differ from the usual (see parity_runs.step)."""


class Computed:
    """Runs of a script, written as recordings; what a run with something imposed takes is counted."""

    def __init__(self, script: Script, folder: Path) -> None:
        self._script = script
        self._folder = folder
        self._known: dict[str, Recording] = {}
        self.always = Intervention()
        self.each = 1.0
        self.asked: list[Intervention] = []

    def recorded(self, env: Mapping[str, str | None], facts: Mapping[str, Any] = ENVIRONMENT) -> Recording:
        name = repr(sorted(env.items()))
        if name not in self._known:
            run = Run([step(), step(**self._script(env))], environment=facts)
            self._known[name] = read(run.write(self._folder / str(len(self._known))))
        return self._known[name]

    def run(self, imposed: Intervention, until: float, *, again: int = 0) -> Replay:
        del until, again
        self.asked.append(imposed)
        return Replay(self.recorded(imposed.env), 1.0)

    def estimate(self, imposed: Intervention, again: int = 0) -> float:
        del imposed, again
        return self.each


def differing(name: str, topic: str = "environment", **more: Any) -> Candidate:
    imposed = Intervention(env={name: "1"})
    return Candidate(topic, f"{name} differs", f"Mend {name}.", imposed, **more)


def searched(
    tmp_path: Path, script: Script, listed: list[Candidate], budget: float = 600.0
) -> tuple[Verdict, Computed]:
    """A is the script without variables, B with those of every difference."""
    runs = Computed(script, tmp_path)
    singles = [one for each in listed for one in each.parts or (each,) if each.kind == "difference"]
    everything = {name: value for one in singles if one.imposed for name, value in one.imposed.env.items()}
    a, b = runs.recorded({}), runs.recorded(everything)
    finding = compare_stages(a, b).finding
    assert finding is not None
    sides = Sides(a, b, "A", Other(ENVIRONMENT))
    search = Search(sides, cast(Replayer, runs), Clock(budget), Replay(a, 1.0), None, Silent())
    return search.verdict(judge(a, b), finding, listed), runs


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {each.words.split()[0]: each.outcome for each in verdict.tried}


def test_one_guilty_variable_is_named_and_only_what_was_tried_is_cleared(tmp_path: Path) -> None:
    listed = [differing(name) for name in ("ONE", "TWO", "THREE")]
    found, _ = searched(tmp_path, lambda env: {"activation_b": [3.0, 9.0]} if "TWO" in env else {}, listed)
    assert (found.confirmed, found.cause, found.fix) == (True, "Confirmed: TWO differs.", "Mend TWO.")
    assert outcomes(found) == {"ONE": "cleared", "TWO": "confirmed", "THREE": "not needed"}


@pytest.mark.parametrize("guilty", [{"A1", "A4"}, {"A0", "A2", "A5"}, {"A0", "A1", "A2", "A3", "A4", "A5"}])
def test_several_that_act_only_together_are_the_smallest_set(tmp_path: Path, guilty: set[str]) -> None:
    listed = [differing(f"A{n}") for n in range(6)]
    found, _ = searched(tmp_path, lambda env: {"loss_loss": [9.0]} if guilty <= set(env) else {}, listed)
    assert {name for name, outcome in outcomes(found).items() if outcome == "confirmed"} == guilty
    assert found.confirmed and "; together with: " in str(found.cause)


def test_two_that_act_each_at_its_own_stage(tmp_path: Path) -> None:
    def script(env: Mapping[str, str | None]) -> dict[str, list[float]]:
        early = {"batch_data_0": [9.0, 2.0, 3.0, 4.0]} if "DATA" in env else {}
        return early | ({"update_a_kernel": [9.0, 0.3, -1.1]} if "RATE" in env else {})

    listed = [differing(name) for name in ("NOTHING", "DATA", "RATE")]
    found, _ = searched(tmp_path, script, listed)
    assert outcomes(found) == {"NOTHING": "cleared", "DATA": "confirmed", "RATE": "confirmed"}


def test_of_a_hundred_files_the_one_that_acts_is_found_in_few_runs(tmp_path: Path) -> None:
    parts = tuple(differing(f"F{n}", "data") for n in range(100))
    whole = Intervention(env={f"F{n}": "1" for n in range(100)})
    listed = [Candidate("data", "100 files differ", "Sync.", whole, parts=parts), differing("PATH", "folder")]
    found, runs = searched(tmp_path, lambda env: {"loss_loss": [9.0]} if "F42" in env else {}, listed)
    assert found.cause == "Confirmed: F42 differs."
    assert len(runs.asked) < 4 * math.log2(100)


def test_the_path_is_not_accused_beside_files_that_are_enough(tmp_path: Path) -> None:
    listed = [differing("F1", "data"), differing("F2", "data"), differing("PATH", "folder")]

    def script(env: Mapping[str, str | None]) -> dict[str, list[float]]:
        return {"batch_data_0": [float("F1" in env), 2.0, float("F2" in env), 4.0]}

    found, _ = searched(tmp_path, script, listed)
    assert outcomes(found) == {"F1": "confirmed", "F2": "confirmed", "PATH": "cleared"}


def test_what_cannot_be_tried_is_said_and_stays_a_suspicion(tmp_path: Path) -> None:
    gone = Candidate("data", "GONE differs", "Sync.", None, why="it is not on this computer")
    runs = Computed(lambda env: {"loss_loss": [9.0]} if "GONE" in env else {}, tmp_path)
    a, b = runs.recorded({}), runs.recorded({"GONE": "1"})
    finding = compare_stages(a, b).finding
    assert finding is not None
    sides = Sides(a, b, "A", Other(ENVIRONMENT))
    search = Search(sides, cast(Replayer, runs), Clock(600), Replay(a, 1.0), None, Silent())
    found = search.verdict(judge(a, b), finding, [gone, differing("OTHER")])
    assert not found.confirmed and str(found.cause).startswith("Suspected")
    assert outcomes(found) == {"GONE": "not tried", "OTHER": "cleared"}
    assert found.untried == "Not tried: GONE differs."


def test_what_was_cleared_is_no_suspect_any_more(tmp_path: Path) -> None:
    """The environment differs in a variable that is tried and changes nothing, and in a file that is gone."""
    runs = Computed(lambda env: {"batch_data_0": [9.0, 2.0, 3.0, 4.0]} if "GONE" in env else {}, tmp_path)
    there = {**ENVIRONMENT, "environment": {"LANG": "C.UTF-8", "TF_X": "1"}}
    a, b = runs.recorded({}), runs.recorded({"GONE": "1"}, there)
    finding, first = compare_stages(a, b).finding, judge(a, b)
    assert finding is not None and "TF_X" in str(first.cause)
    words = str(first.cause).removeprefix("Suspected: ").removesuffix(".")
    variable = Candidate("environment", words, "Unset it.", Intervention(env={"TF_X": "1"}), name="TF_X")
    gone = Candidate("data", "GONE differs", "Sync it.", None, why="it is not on this computer")
    for listed, said in (
        ([variable, gone], "Suspected: GONE differs."),
        ([variable], "Not known: no recorded"),
    ):
        search = Search(
            Sides(a, b, "A", Other(there)), cast(Replayer, runs), Clock(600), Replay(a, 1.0), None, Silent()
        )
        found = search.verdict(first, finding, listed)
        assert str(found.cause).startswith(said) and not found.confirmed
        assert "TF_X" not in str(found.cause) and "Suspected: TF_X" not in found.detail


def test_a_spent_budget_is_said(tmp_path: Path) -> None:
    listed = [differing("ONE"), differing("TWO")]
    found, runs = searched(tmp_path, lambda env: {"loss_loss": [9.0]} if env else {}, listed, budget=0.0)
    assert not found.confirmed and runs.asked == []
    assert found.untried == "Not tried: ONE differs; TWO differs."
    assert {each.why for each in found.tried} == {"the budget of 0 s was used up"}


def test_the_likely_cause_is_tried_although_time_seems_too_short(tmp_path: Path) -> None:
    runs = Computed(lambda env: {"loss_loss": [9.0]} if "ONE" in env else {}, tmp_path)
    runs.each = 1000.0
    a, b = runs.recorded({}), runs.recorded({"ONE": "1"})
    finding = compare_stages(a, b).finding
    assert finding is not None
    sides = Sides(a, b, "A", Other(ENVIRONMENT))
    search = Search(sides, cast(Replayer, runs), Clock(600), Replay(a, 1.0), None, Silent())
    found = search.verdict(judge(a, b), finding, [differing("ONE"), differing("TWO", kind="probe")])
    assert (found.cause, found.confirmed) == ("Confirmed: ONE differs.", True)


def test_what_was_left_out_by_estimate_is_said_so(tmp_path: Path) -> None:
    """The second one is a probe: what is not recorded gets no more than the time that there seems to be."""
    listed = [differing("ONE"), differing("TWO", kind="probe")]
    runs = Computed(lambda env: {"loss_loss": [9.0]} if "NEITHER" in env else {}, tmp_path)
    runs.each = 1000.0
    a, b = runs.recorded({}), runs.recorded({"NEITHER": "1"})
    finding = compare_stages(a, b).finding
    assert finding is not None
    sides = Sides(a, b, "A", Other(ENVIRONMENT))
    search = Search(sides, cast(Replayer, runs), Clock(600), Replay(a, 1.0), None, Silent())
    found = search.verdict(judge(a, b), finding, listed)
    assert outcomes(found) == {"ONE": "cleared", "TWO": "not tried"}
    assert found.tried[1].why == "what was left of the 600 s would not have sufficed"


class Lucky(Computed):
    """A run with something imposed is the other side the first time, and never again."""

    def run(self, imposed: Intervention, until: float, *, again: int = 0) -> Replay:
        known = super().run(imposed, until)
        return Replay(self.recorded({}), 1.0) if again else known


@pytest.mark.parametrize(("topic", "confirmed"), [("order", False), ("environment", True)])
def test_what_may_be_a_race_must_hold_in_three_runs(tmp_path: Path, topic: str, confirmed: bool) -> None:
    runs = Lucky(lambda env: {"loss_loss": [9.0]} if "ONE" in env else {}, tmp_path)
    a, b = runs.recorded({}), runs.recorded({"ONE": "1"})
    finding = compare_stages(a, b).finding
    assert finding is not None
    sides = Sides(a, b, "A", Other(ENVIRONMENT))
    search = Search(sides, cast(Replayer, runs), Clock(600), Replay(a, 1.0), None, Silent())
    found = search.verdict(judge(a, b), finding, [differing("ONE", topic)])
    assert (found.confirmed, search.shaken) == (confirmed, not confirmed)
    if not confirmed:
        assert "it was luck" in found.tried[0].why


def test_in_how_many_runs_it_was_seen_is_said(tmp_path: Path) -> None:
    found, _ = searched(
        tmp_path, lambda env: {"loss_loss": [9.0]} if "ONE" in env else {}, [differing("ONE", "order")]
    )
    assert found.confirmed and found.tried[0].why.endswith(
        "bitwise identical to those of B, in each of 3 runs"
    )


def test_where_nothing_explains_it_a_replay_locates_it(tmp_path: Path) -> None:
    a = Computed(lambda _env: {}, tmp_path / "a")
    b = Computed(lambda _env: {"batch_data_0": [9.0, 2.0, 3.0, 4.0]}, tmp_path / "b")
    left, right = a.recorded({}), b.recorded({})
    replay = Candidate("replay", "what enters the model", "", Intervention(env={"REPLAY": "1"}), "replay")
    a._known[repr([("REPLAY", "1")])] = right
    finding = compare_stages(left, right).finding
    assert finding is not None
    sides = Sides(left, right, "A", Other(ENVIRONMENT))
    search = Search(sides, cast(Replayer, a), Clock(600), Replay(left, 1.0), None, Silent())
    found = search.verdict(judge(left, right), finding, [replay])
    assert not found.confirmed
    assert "Confirmed: the difference lies in what enters the model" in str(found.cause)


def test_the_band_comes_from_flips_that_are_not_the_cause(tmp_path: Path) -> None:
    """The cause moves an activation by one unit in the last place; one thread moves it as far."""

    def script(env: Mapping[str, str | None]) -> dict[str, list[float]]:
        return {"activation_b": [3.0, 5.0 * (1 + 2.0**-22)]} if "ISA" in env else {}

    found, runs = searched(tmp_path, script, [differing("ISA", "isa")])
    assert (found.verdict, found.confirmed) == ("EQUIVALENT", True)
    assert found.band is not None and found.band.flips == ("ISA differs",), "nothing else moved anything"
    assert any(imposed.plan == {"intra_op": 1} for imposed in runs.asked)
