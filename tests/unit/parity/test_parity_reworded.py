"""No verdict depends on a sentence: with every message of the parity room reworded, the same is decided."""

from __future__ import annotations

import hashlib
import itertools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.model import Divergence, Silent, Tried, Verdict
from orchestrator.parity import explain, judge
from orchestrator.parity.cause import Cause
from orchestrator.parity.changes import Change
from orchestrator.parity.intervention import Candidate, Intervention, Other
from orchestrator.parity.naming import SideNames
from orchestrator.parity.recording import Recording, read
from orchestrator.replay import baseline as replay_baseline
from orchestrator.replay.baseline import Baseline
from orchestrator.replay.confirm import confirm
from orchestrator.replay.replay import Replay
from orchestrator.replay.replayer import Replayer
from orchestrator.replay.sides import Sides
from orchestrator.replay.tried import WHY
from orchestrator.report.parity import letter
from tests.unit.parity_runs import ENVIRONMENT, Run, step

SENTENCES: Mapping[type, Sequence[str]] = {
    Change: ("words", "fix"),
    Candidate: ("words", "fix", "why"),
    Cause: ("sentence", "fix"),
    Tried: ("words", "why"),
    Divergence: ("detail",),
    Verdict: ("cause", "detail", "fix", "untried", "summary", "because", "more"),
    explain.Remedy: ("words", "fix"),
    explain.Diagnosis: ("untried", "located"),
    Baseline: ("obstacle",),
    Replay: ("why",),
    SideNames: ("a", "b", "in_a", "in_b", "of_a", "of_b", "to_a", "to_b"),
}
"""Every field that holds words for people."""

_numbers = itertools.count()

WORDINGS: Mapping[str, Callable[[str], str]] = {
    "all the same": lambda _text: "Words.",
    "never the same twice": lambda _text: f"Words {next(_numbers)}",
    "backwards": lambda text: text[::-1],
    "another sentence's": lambda _text: "Confirmed: the file x.csv is not the same. Not compared: all.",
}


@pytest.fixture(params=WORDINGS)
def reworded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Rewords, once called, whatever is said from then on."""

    def begin() -> None:
        wording = WORDINGS[request.param]
        for kind, names in SENTENCES.items():
            monkeypatch.setattr(kind, "__init__", _rewording(kind.__init__, names, wording))  # type: ignore[misc]
        for reason, text in tuple(WHY.items()):
            monkeypatch.setitem(WHY, reason, wording(text))
        monkeypatch.setattr(replay_baseline, "REMEDIES", tuple(_remedies()))

    return begin


def _rewording(
    made: Callable[..., None], names: Sequence[str], wording: Callable[[str], str]
) -> Callable[..., None]:
    def init(self: Any, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        for name in names:
            if getattr(self, name):
                object.__setattr__(self, name, wording(getattr(self, name)))

    return init


def _remedies() -> Iterator[tuple[Intervention, tuple[explain.Remedy, ...]]]:
    for imposed, remedies in replay_baseline.REMEDIES:
        yield imposed, tuple(explain.Remedy(each.kind, each.words, each.fix) for each in remedies)


def test_every_field_with_words_is_reworded(reworded: Callable[[], None]) -> None:
    reworded()
    for kind, names in SENTENCES.items():
        assert set(names) <= {each.name for each in fields(kind)}
    assert Tried("the file x is not the same", "cleared").words != "the file x is not the same"


# ---------------------------------------------------------------- what is decided


def decided(verdict: Verdict) -> dict[str, Any]:
    """All of a verdict but its words."""
    at = verdict.divergence
    return {
        "verdict": (verdict.verdict, verdict.confirmed, verdict.steps, verdict.compared),
        "first difference": (at.step, at.stage, at.tensor, at.relative, at.others) if at else None,
        "about": verdict.about,
        "said": [bool(text) for text in (verdict.cause, verdict.fix, verdict.untried, verdict.not_compared)],
        "tried": [
            (each.subjects, each.outcome, each.kind, each.topic, each.reason) for each in verdict.tried
        ],
        "band": (verdict.band.limit, verdict.band.drift, len(verdict.band.flips)) if verdict.band else None,
        "parts": [head for line in letter(verdict.as_json()).splitlines()[1:] if (head := line[:12].strip())],
    }


# ---------------------------------------------------------------- recordings that are judged


def facts(**changed: Any) -> dict[str, Any]:
    return {**ENVIRONMENT, **changed}


def listed(*names: str, content: str = "1") -> dict[str, Any]:
    entries = [
        {"name": n, "path": f"/p/{n}", "bytes": 1, "sha256": f"{content}{n}", "way": "python"} for n in names
    ]
    return {"list": entries}


BATCH = {"batch_data_0": [9.0, 2.0, 3.0, 4.0]}
TURNED = {"batch_data_0": [4.0, 3.0, 2.0, 1.0]}
NUDGED = {"activation_b": [3.0, 5.0 * (1 + 2.0**-23)]}

PAIRS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, list[float]]]] = {
    "equal": (facts(), facts(), {}),
    "rounding": (facts(), facts(cpu={"count": 2, "flags": ["avx2"]}), NUDGED),
    "unexplained": (facts(), facts(), {"activation_b": [3.0, 9.0]}),
    "order, which cores change": (facts(), facts(cpu={"count": 8, "flags": ["avx2"]}), TURNED),
    "a file": (facts(files=listed("x.csv")), facts(files=listed("x.csv", content="2")), BATCH),
    "a missing file, and what led to it": (
        facts(files=listed("x.csv"), environment={"WHICH": "x"}),
        facts(files=listed("y.csv", content="2"), environment={"WHICH": "y"}),
        BATCH,
    ),
    "files in another order": (facts(files=listed("x", "y")), facts(files=listed("y", "x")), BATCH),
    "arguments": (facts(), facts(argv=["--epochs", "3"]), BATCH),
    "several": (facts(), facts(environment={"TZ": "JST", "A": "1"}, argv=["/a"], models=[]), BATCH),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_verdict_on_two_recordings(tmp_path: Path, name: str, reworded: Callable[[], None]) -> None:
    left, right, change = PAIRS[name]
    note = [{"what": "compiled tensors", "why": "XLA"}]
    a = read(Run([step(), step()], environment=left, notes=note).write(tmp_path / "a"))
    b = read(Run([step(), step(**change)], environment=right, notes=note).write(tmp_path / "b"))
    before = decided(judge(a, b))
    reworded()
    assert decided(judge(a, b)) == before


# ---------------------------------------------------------------- searches


@dataclass
class World:
    """A script on two sides: what it computes of its variables, its files and the number of the run."""

    folder: Path
    compute: Callable[[Mapping[str, str], int], Mapping[str, list[float]]]
    differing: Sequence[str]
    """Variables that are 1 on side A and 2 on side B; files (with a dot) whose content does the same."""
    gone: Sequence[str] = ()
    """Those of the files that are not on this computer any more as side B had them."""
    threads: str = ""
    """The variable that the program makes its threads of."""

    original = None
    forks = False
    import_seconds = 0.0
    run_seconds = 0.0

    def __post_init__(self) -> None:
        self.always = Intervention()
        self.rerun = types.SimpleNamespace(made=())
        self._count = itertools.count()

    def warm(self, imposed: Intervention) -> None:
        del imposed

    def estimate(self, imposed: Intervention, again: int = 0) -> float:
        del imposed, again
        return 0.0

    def run(self, imposed: Intervention, until: float, *, again: int = 0) -> Replay:
        del until
        imposed = self.always | imposed
        values = {**dict.fromkeys(self.differing, "1"), "unrecorded": "1"}
        values |= {name: str(value) for name, value in imposed.env.items() if name in values}
        values |= {name: "2" for name, file in imposed.files.items() if file and name in values}
        values |= {name: str(value) for name, value in imposed.plan.items()}
        return Replay(self.recorded(values, again), 1.0)

    def recorded(self, values: Mapping[str, str], again: int = 0) -> Recording:
        entries = [self._entry(name, value) for name, value in values.items() if "." in name]
        variables = {name: value for name, value in values.items() if name in self.differing}
        variables = {name: value for name, value in variables.items() if "." not in name}
        environment = facts(files={"list": entries}, environment=variables)
        if self.threads:
            threads = int(values.get("intra_op", values[self.threads]))
            environment["threads"] = {"intra": threads}
            values = {**values, "intra_op": str(threads)}
        run = Run([step(), step(**self.compute(values, again))], environment=environment)
        return read(run.write(self.folder / "runs" / str(next(self._count))))

    def _entry(self, name: str, value: str) -> dict[str, Any]:
        path = self.folder / value / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (value == "2" and name in self.gone):
            path.write_text(value)
        digest = hashlib.sha256(value.encode()).hexdigest()
        known = {"name": name, "path": str(path), "bytes": 1, "sha256": digest}
        return {**known, "whole": True, "way": "python"}

    def verdict(self) -> Verdict:
        a = self.recorded({**dict.fromkeys(self.differing, "1"), "unrecorded": "1"})
        b = self.recorded({**dict.fromkeys(self.differing, "2"), "unrecorded": "2"}, again=7)
        sides = Sides(a, b, "A", Other(b.environment, cores=2))
        return confirm(sides, judge(a, b), cast(Replayer, self), 600.0, Silent())


def batch(*guilty: str) -> Callable[[Mapping[str, str], int], Mapping[str, list[float]]]:
    """A script whose batch is another one where all of `guilty` are those of B."""

    def compute(values: Mapping[str, str], _again: int) -> Mapping[str, list[float]]:
        return BATCH if all(values[name] == "2" for name in guilty) else {}

    return compute


def drawn(values: Mapping[str, str], again: int) -> Mapping[str, list[float]]:
    """Other numbers in each run, unless a seed is imposed."""
    return {} if "seed" in values else {"batch_data_0": [float(again), float(values["X"]), 3.0, 4.0]}


def drawn_there(values: Mapping[str, str], again: int) -> Mapping[str, list[float]]:
    """Other numbers in each run with what B has."""
    return {"batch_data_0": [20.0 + again, 2.0, 3.0, 4.0]} if values["X"] == "2" else {}


def summed(values: Mapping[str, str], _again: int) -> Mapping[str, list[float]]:
    return {"gradient_b_kernel": [0.25, 1.5 * (1 + 2.0**-22)]} if values["intra_op"] == "1" else {}


WORLDS: Mapping[str, Callable[[Path], World]] = {
    "a guilty variable": lambda at: World(at, batch("Y"), ["X", "Y", "Z"]),
    "two that act together": lambda at: World(at, batch("X", "Z"), ["X", "Y", "Z"]),
    "a guilty file": lambda at: World(at, batch("x.csv"), ["x.csv", "X"]),
    "a guilty file that is not the first": lambda at: World(at, batch("y.csv"), ["x.csv", "y.csv"]),
    "an innocent file before a guilty variable": lambda at: World(at, batch("X"), ["x.csv", "X"]),
    "one of many files": lambda at: World(at, batch("c.csv"), [f"{n}.csv" for n in "abcdef"]),
    "many innocent files": lambda at: World(at, batch("X"), ["X", "a.csv", "b.csv", "c.csv"]),
    "a file that is gone": lambda at: World(at, batch("x.csv"), ["x.csv", "X"], gone=["x.csv"]),
    "nothing that was recorded": lambda at: World(at, batch("unrecorded"), ["X", "x.csv"]),
    "a cause that brings threads about": lambda at: World(at, summed, ["W"], threads="W"),
    "a script that differs from itself": lambda at: World(at, drawn, ["X"]),
    "one side that differs from itself": lambda at: World(at, drawn_there, ["X"]),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_search_for_the_cause(tmp_path: Path, name: str, reworded: Callable[[], None]) -> None:
    before = decided(WORLDS[name](tmp_path / "before").verdict())
    reworded()
    assert decided(WORLDS[name](tmp_path / "after").verdict()) == before


def test_the_searches_end_in_every_kind_of_verdict(tmp_path: Path) -> None:
    """What the test above compares is worth comparing."""
    found = {name: make(tmp_path / name).verdict() for name, make in WORLDS.items()}
    for name, each in found.items():
        print(name, each.verdict, each.confirmed, [(t.outcome, t.topic) for t in each.tried], each.cause)
    outcomes = {each.outcome for verdict in found.values() for each in verdict.tried}
    assert {"confirmed", "follows", "cleared", "not needed", "not tried"} <= outcomes
    assert {each.verdict for each in found.values()} == {"EQUIVALENT", "DIVERGENT", "UNSTABLE"}
