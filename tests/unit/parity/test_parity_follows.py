"""A cause precedes the differences that follow from it; they are reported as its consequences."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.model import Divergence, Silent, Subject, Tried, Verdict
from orchestrator.parity import judge
from orchestrator.parity.changes import changes
from orchestrator.parity.explain import Diagnosis, conclude, place
from orchestrator.parity.intervention import Candidate, Intervention, Other
from orchestrator.parity.ladder import Finding, compare_stages
from orchestrator.parity.plan import brings_about, candidates
from orchestrator.parity.recording import Recording, read
from orchestrator.replay.baseline import find_one_sided_nondeterminism
from orchestrator.replay.replay import Replay
from orchestrator.replay.replayer import Replayer
from orchestrator.replay.search import Search
from orchestrator.replay.sides import Clock, Sides
from orchestrator.report.parity import letter
from orchestrator.runtime.observe.project import name_of_file, roots
from orchestrator.runtime.replay.interventions import reseeded
from tests.unit.parity_runs import ENVIRONMENT, Run, step

NUDGED = {"gradient_b_kernel": [0.25, 1.5 * (1 + 2.0**-22)]}


class Training:
    """A training of as many threads as its variable says, unless the threads themselves are imposed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.always = Intervention()

    def recorded(self, imposed: Intervention) -> Recording:
        variable = imposed.env.get("WORKERS", "2")
        threads = int(imposed.plan.get("intra_op", variable))
        facts = {
            **ENVIRONMENT,
            "environment": {"WORKERS": variable},
            "threads": {"intra": threads},
            "cwd": "/a",
        }
        self._count += 1
        run = Run([step(), step(**(NUDGED if threads == 1 else {}))], environment=facts)
        return read(run.write(self._folder / str(self._count)))

    def run(self, imposed: Intervention, until: float, *, again: int = 0) -> Replay:
        del until, again
        return Replay(self.recorded(imposed), 1.0)

    def estimate(self, imposed: Intervention, again: int = 0) -> float:
        del imposed, again
        return 0.0


def test_a_variable_that_a_program_makes_threads_of_is_the_cause_and_the_threads_follow(
    tmp_path: Path,
) -> None:
    runs = Training(tmp_path)
    a, b = runs.recorded(Intervention()), runs.recorded(Intervention(env={"WORKERS": "1"}))
    finding = compare_stages(a, b).finding
    assert finding and finding.rounding
    listed = candidates(
        finding, changes(a.environment, b.environment), "A", a.environment, Other(b.environment, cores=2)
    )
    assert [each.topic for each in listed if each.kind == "difference"] == ["threads", "environment"]
    search = Search(
        Sides(a, b, "A", Other(b.environment)),
        cast(Replayer, runs),
        Clock(600),
        Replay(a, 1.0),
        None,
        Silent(),
    )
    found = search.verdict(judge(a, b), finding, listed)
    assert (found.verdict, found.cause) == ("EQUIVALENT", "Confirmed: WORKERS is 2 in A and 1 in B.")
    assert {each.topic: each.outcome for each in found.tried if each.kind == "difference"} == {
        "threads": "follows",
        "environment": "confirmed",
    }
    text = letter(found.as_json())
    assert "It also causes: an operation uses 2 threads in A and 1 in B" in text
    assert "Cleared" not in text and "Export WORKERS=2 on both sides" in text


def of(topic: str, kind: str = "difference") -> Candidate:
    return Candidate(topic, topic, "", Intervention(), kind)


@pytest.mark.parametrize(
    ("topic", "found", "may"),
    [
        ("environment", "threads", True),
        ("data", "policy", True),
        ("start", "data", True),
        ("folder", "seed", True),
        ("environment", "data", False),
        ("threads", "environment", False),
        ("paths", "data", False),
    ],
)
def test_what_may_bring_about_what(topic: str, found: str, may: bool) -> None:
    assert brings_about(of(topic), of(found)) is may
    assert not brings_about(of(topic), replace(of("threads"), variable=True))


# ---------------------------------------------------------------- files that are innocent


def with_file(tmp_path: Path, digest: str, **changed: list[float]) -> Recording:
    entry = {"name": "x.npz", "path": "/x.npz", "bytes": 1, "sha256": digest, "whole": True, "way": "python"}
    facts = {**ENVIRONMENT, "files": {"list": [entry]}}
    return read(Run([step(**changed), step()], environment=facts).write(tmp_path / f"{digest}{len(changed)}"))


def test_a_file_that_changes_nothing_does_not_stand_before_what_does(tmp_path: Path) -> None:
    batch = [9.0, 2.0, 3.0, 4.0]
    mine, theirs = with_file(tmp_path, "1"), with_file(tmp_path, "2", batch_data_0=batch)
    given = with_file(tmp_path, "2")
    assert place(mine, theirs) == place(given, theirs)


@pytest.mark.parametrize(
    ("outcomes", "stage", "tensor"),
    [
        ({"x.npz": "cleared"}, "batch", "data/0"),
        ({"x.npz": "not needed"}, "batch", "data/0"),
        ({"x.npz": "confirmed"}, "files", "x.npz"),
        ({"x.npz": "follows"}, "files", "x.npz"),
        ({"x.npz": "cleared", "y.npz": "confirmed"}, "files", "y.npz"),
        ({"x.npz": "follows", "y.npz": "confirmed"}, "files", "y.npz"),
    ],
)
def test_a_cleared_file_is_not_the_first_difference(
    tmp_path: Path, outcomes: Mapping[str, str], stage: str, tensor: str
) -> None:
    a, b = with_file(tmp_path, "1"), with_file(tmp_path, "2", batch_data_0=[9.0, 2.0, 3.0, 4.0])
    finding, first = compare_stages(a, b).finding, judge(a, b)
    assert finding and finding.stage == "files"
    tried = tuple(
        Tried("read", outcome, topic="data", subjects=(Subject("data", name),))
        for name, outcome in outcomes.items()
    )
    found = conclude(first, finding, Diagnosis((of("environment"),), tried), None, {})
    assert found.divergence and (found.divergence.stage, found.divergence.tensor) == (stage, tensor)
    assert ("x.npz has other content" in found.detail) == (tensor == "x.npz")


# ---------------------------------------------------------------- one side is the same each time


class Drawn(Training):
    """A training that draws its batch anew in each run with what the other side has."""

    def recorded(self, imposed: Intervention) -> Recording:
        self._count += 1
        drawn = {"batch_data_0": [float(self._count), 2.0, 3.0, 4.0]} if "SEED" in imposed.env else {}
        return read(Run([step(**drawn), step()]).write(self._folder / str(self._count)))

    def run(self, imposed: Intervention, until: float, *, again: int = 0) -> Replay:
        return super().run(self.always | imposed, until, again=again)


def test_what_makes_a_script_differ_from_itself_on_one_side_is_named(tmp_path: Path) -> None:
    runs = Drawn(tmp_path)
    unset = Candidate(
        "environment", "SEED is 1 in A and not set in B", "Set SEED.", Intervention(env={"SEED": None})
    )
    a, b = runs.recorded(Intervention()), runs.recorded(unset.imposed or Intervention())
    finding = compare_stages(a, b).finding
    assert finding
    search = Search(
        Sides(a, b, "A", Other(ENVIRONMENT)), cast(Replayer, runs), Clock(600), Replay(a, 1.0), None, Silent()
    )
    assert not search.verdict(judge(a, b), finding, [unset]).confirmed
    assert search.unsettles is unset
    found = find_one_sided_nondeterminism(unset, cast(Replayer, runs), Clock(600).until)
    assert found and found.verdict == "UNSTABLE" and runs.always == Intervention()
    assert str(found.cause).endswith("That is so on one side only, by this: SEED is 1 in A and not set in B.")
    assert str(found.fix).endswith("Set SEED.")


# ---------------------------------------------------------------- the letter


def test_stages_in_the_plural() -> None:
    shows = Divergence(1, "initial", "sgd/learning_rate", 0.5, "0.01 in A and 0.02 in B")
    divergence = Divergence(1, "files", "args.txt", None, "args.txt differs", shows)
    found = Verdict("DIVERGENT", divergence=divergence)
    assert "As a result the initial weights of step 1 differ: sgd/learning_rate." in _flat(found.as_json())


def _flat(parity: dict[str, Any]) -> str:
    return " ".join(letter(parity).split())


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (None, "The data files that were seen to be read are equal."),
        ("cleared", "The files that differ do not cause this."),
        ("confirmed", ""),
    ],
)
def test_files_are_called_equal_only_where_they_are(outcome: str | None, said: str) -> None:
    tried = (Tried("the file x is not the same", outcome, topic="data"),) if outcome else ()
    found = Verdict("DIVERGENT", divergence=Divergence(1, "batch", "data/0", None, "all differ"), tried=tried)
    text = _flat(found.as_json())
    assert said in text
    assert ("The data" in text, "The files that" in text) == (outcome is None, outcome == "cleared")


def test_files_that_libraries_keep_and_that_differ_are_not_called_equal() -> None:
    tried = (Tried("the file ~/.cache/x is not the same", "not tried", topic="cache"),)
    found = Verdict("DIVERGENT", divergence=Divergence(1, "batch", "data/0", None, "all differ"), tried=tried)
    text = _flat(found.as_json())
    assert "read are equal; files that libraries keep for themselves are not." in text


def test_rounding_that_has_grown_is_not_called_beyond() -> None:
    band = {"limit": {"loss": [1e-7]}, "drift": {"loss": [1e-5]}, "flips": ["oneDNN off"], "margin": 4.0}
    finding = {"step": 1, "stage": "loss", "tensor": "loss", "difference": "1 of 9 elements differ"}
    for verdict, said in (("EQUIVALENT", "has grown beyond it"), ("DIVERGENT", "BEYOND")):
        text = _flat({"verdict": verdict, **finding, "band": band})
        assert said in text and ("BEYOND" in text) == (verdict == "DIVERGENT")


def test_a_seed_and_a_start_are_differences() -> None:
    a = {
        **ENVIRONMENT,
        "rng": {"keras_seed": 1, "tensorflow_seed": 1},
        "start": {"as": "src/train.py", "in": ".."},
    }
    b = {
        **ENVIRONMENT,
        "rng": {"keras_seed": 2, "tensorflow_seed": 2},
        "start": {"as": "train.py", "in": "."},
    }
    seed, start = changes(a, b)
    assert seed.words == "the seed is 1 in A and 2 in B"
    assert (
        start.words == "the program is started from another folder: as src/train.py in A and as train.py in B"
    )
    finding = Finding(1, "initial", "a/kernel", "value", "float32", None, 0, None, False, None)
    imposed = {each.topic: each.imposed for each in candidates(finding, (seed, start), "B", b, Other(a))}
    assert imposed["seed"] == Intervention(plan={"reseed": [2, 1]})
    assert imposed["start"] == Intervention(start="..")
    (unseeded,) = changes({**a, "start": None}, {**b, "start": None, "rng": {"keras_seed": None}})
    (found,) = candidates(finding, (unseeded,), "A", a, Other(b))[:1]
    assert found.imposed is None and found.why


@pytest.mark.parametrize(
    ("configured", "fix"),
    [
        (0, "Set TF_NUM_INTRAOP_THREADS=1"),
        (2, "Call tf.config.threading.set_intra_op_parallelism_threads(1)"),
    ],
)
def test_threads_are_set_where_the_program_sets_them(configured: int, fix: str) -> None:
    usual = {**ENVIRONMENT, "tensorflow": {**ENVIRONMENT["tensorflow"], "intra_op_threads": configured}}
    (change,) = changes({**usual, "threads": {"intra": 2}}, {**usual, "threads": {"intra": 1}})
    assert change.fix == f"{fix} on both sides."


def test_single_precision_is_shown_as_it_was_typed() -> None:
    rates = [
        [{"class": "Adam", "config": {"learning_rate": rate}}] for rate in (0.0010000000474974513, 0.002)
    ]
    (change,) = changes(*({**ENVIRONMENT, "optimizers": each} for each in rates))
    assert change.words.endswith("learning_rate is 0.001 in A and 0.002 in B")


def test_one_seed_is_taken_for_the_other_by_whatever_name_the_function_is_known() -> None:
    made: dict[str, Any] = {}
    exec("def set_seed(seed, more=0, *, last=1): return seed, more, last", made)
    known = made["set_seed"]
    reseeded(SimpleNamespace(set_seed=known), "set_seed", [7, 8])
    assert (known(7, 7), known(seed=7, last=7), known(3)) == ((8, 7, 1), (8, 0, 7), (3, 0, 1))
    owner = SimpleNamespace(seed=random.Random(0).seed, made=random.Random)
    reseeded(owner, "made", [7, 8])
    assert owner.made(7).random() == random.Random(8).random()


def test_the_home_folder_is_known_by_whatever_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", f"{tmp_path}/project/../home")
    assert name_of_file(f"{tmp_path}/home/.app/settings.ini", roots()) == "~/.app/settings.ini"
