"""The rungs below and above the tensors of a step: files, random states, surroundings, metrics, light steps;
and what one run was given of another."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator import parity
from orchestrator.parity.ladder import Comparison, compare_stages
from orchestrator.parity.recording import Recording, read
from orchestrator.parity.wording import difference
from tests.nightly import NIGHTLY

RUNTIME = Path(__file__).resolve().parents[2] / "orchestrator" / "runtime"
PROGRAM = Path(__file__).with_name("observe_rig.py")
STYLES = ("fit", "train_step", "eager", "function", "arrays") if NIGHTLY else ("fit", "train_step", "eager")

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Runs:
    """What was recorded, by name."""

    root: Path

    def recording(self, name: str) -> Recording:
        return read(self.root / name)

    def facts(self, name: str) -> Mapping[str, Any]:
        return self.recording(name).environment

    def climb(self, a: str, b: str) -> Comparison:
        return compare_stages(self.recording(a), self.recording(b))

    def status(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.root / name / "observe" / "status.json").read_text()))


def wishes(root: Path, project: Path) -> list[dict[str, Any]]:
    """Every run that a test below looks at; later ones may be given what earlier ones recorded."""

    def run(name: str, *arguments: str, data: str = "data", **more: Any) -> dict[str, Any]:
        return {"name": name, "folder": str(root / name), "arguments": ["--data", data, *arguments], **more}

    elsewhere = {"TZ": "America/New_York", "TF_CPP_MIN_LOG_LEVEL": "0", "OMP_NUM_THREADS": "1"}
    found = [
        run("plain", light=3),
        run("again", data=str(project / "data"), light=3, environment=elsewhere),
        run("short", light=50),
        run("damaged", "--damage", "5", light=3),
        run("nudged", "--nudge", "3", light=3),
        run("other_file", data="other"),
        run("other_seed", "--seed", "7"),
        run("reversed", "--reverse", "1"),
        run("idle", "--style", "idle"),
    ]
    for style in STYLES:
        mine, theirs = f"{style}_a", f"{style}_b"
        given = {"impose_batch": str(root / mine / "observe"), "impose_weights": str(root / mine / "observe")}
        options = ("--style", style)
        found += [
            run(mine, *options),
            run(theirs, *options, "--seed", "7", "--noise", "7"),
            run(f"{style}_imposed", *options, "--seed", "7", "--noise", "7", **given),
        ]
    impossible = {"impose_batch": str(root / "absent"), "impose_weights": str(root / "eager_a" / "observe")}
    found.append(run("impossible", "--style", "fit", **impossible))
    return found


@pytest.fixture(scope="module")
def runs(tf_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root, project = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("project")
    (root / "orch_runtime").symlink_to(RUNTIME)
    for folder, scale in (("data", "1"), ("other", "2")):
        (project / folder).mkdir()
        (project / folder / "table.csv").write_text("".join(f"{i},{i + 1},{i + 2}\n" for i in range(8)))
        make = f"import numpy; numpy.save({str(project / folder / 'scale.npy')!r}, numpy.full(3, {scale}.0))"
        subprocess.run([str(tf_python), "-c", make], check=True, timeout=60)
    (root / "runs.json").write_text(json.dumps(wishes(root, project)))
    command = [str(tf_python), "-W", "ignore", str(PROGRAM), str(root), str(project), str(root / "runs.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=880, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    errors = [line for line in map(json.loads, done.stdout.splitlines()) if line["error"]]
    assert not errors, errors[0]["error"]
    return Runs(root)


# ---------------------------------------------------------------- files


def test_files_are_listed_in_the_order_of_their_first_opening(runs: Runs) -> None:
    listed = runs.facts("plain")["files"]["list"]
    read_ones = [entry for entry in listed if entry["name"].startswith("--data/")]
    assert [entry["name"] for entry in read_ones] == ["--data/scale.npy", "--data/table.csv"]
    for entry in read_ones:
        content = Path(entry["path"]).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
        assert entry["whole"] and not entry["made"]
    assert not [entry for entry in listed if entry["name"].endswith((".py", ".pyc", ".so"))]
    assert not [entry for entry in listed if "observe" in entry["path"]]


def test_what_the_program_made_itself_is_told_apart(runs: Runs) -> None:
    listed = {entry["name"]: entry for entry in runs.facts("plain")["files"]["list"]}
    assert listed["cache.npy"]["made"]


def test_the_same_files_by_another_path_are_the_same(runs: Runs) -> None:
    assert runs.climb("plain", "again").finding is None


def test_another_file_is_the_first_rung(runs: Runs) -> None:
    finding = runs.climb("plain", "other_file").finding
    assert finding is not None and finding.shows is not None
    assert (finding.stage, finding.tensor, finding.kind) == ("files", "--data/scale.npy", "content")
    assert finding.shows.stage == "batch" and not finding.rounding
    assert parity.compare(runs.root / "plain", runs.root / "other_file").verdict == "DIVERGENT"


def test_another_seed_is_named(runs: Runs) -> None:
    verdict = parity.compare(runs.root / "plain", runs.root / "other_seed")
    assert verdict.divergence is not None
    assert (verdict.verdict, verdict.divergence.stage) == ("DIVERGENT", "initial"), verdict.detail
    assert verdict.cause is not None and "--seed 7" in verdict.cause


def test_another_order_of_the_same_records_is_told_from_other_records(runs: Runs) -> None:
    verdict = parity.compare(runs.root / "plain", runs.root / "reversed")
    assert verdict.divergence is not None
    assert (verdict.verdict, verdict.divergence.stage) == ("DIVERGENT", "batch"), verdict.detail
    assert "the same 16 records in another order" in verdict.divergence.detail


def test_a_program_that_trains_nothing_is_not_compared(runs: Runs) -> None:
    verdict = parity.compare(runs.root / "plain", runs.root / "idle")
    assert verdict.verdict == "NOT COMPARED" and "no optimizer updated any weight" in verdict.detail


# ---------------------------------------------------------------- facts


def test_random_states_are_those_before_the_first_step(runs: Runs) -> None:
    plain, again, other = (runs.facts(name)["rng"] for name in ("plain", "again", "other_seed"))
    assert plain == again
    assert (plain["tensorflow_seed"], other["tensorflow_seed"], other["keras_seed"]) == (0, 7, 7)
    assert plain["python"] != other["python"] and plain["numpy"] != other["numpy"]


def test_where_it_ran_is_told(runs: Runs) -> None:
    plain, again = runs.facts("plain"), runs.facts("again")
    assert again["timezone"]["utc_offsets"] == [-18000, -14400]
    assert again["environment"]["OMP_NUM_THREADS"] == "1"
    assert "TF_CPP_MIN_LOG_LEVEL" not in again["environment"], "what is printed changes no number"
    assert plain["locale"]["preferred_encoding"] and plain["locale"]["categories"]["LC_NUMERIC"]
    assert plain["threads"]["intra"] == len(plain["cpu"]["affinity"])
    assert plain["strategy"]["replicas"] == 1 and plain["datasets"]
    assert plain["compiled"][0]["loss"] == "sparse_categorical_crossentropy"
    assert plain["compiled"][0]["metrics"] == ["accuracy"]


# ---------------------------------------------------------------- metrics and light steps


def test_metrics_come_last(runs: Runs) -> None:
    steps = runs.recording("plain").steps
    assert [sorted(step.stage("metrics")) for step in steps] == [["accuracy", "loss"]] * 2
    assert sorted(runs.recording("train_step_a").steps[1].stage("metrics")) == ["loss", "twice"]
    assert runs.climb("plain", "again").stages >= {"metrics", "update"}


def test_light_steps_go_on_where_full_ones_end(runs: Runs) -> None:
    light = runs.recording("plain").light
    assert [step.number for step in light] == [3, 4, 5]
    assert {stage for stage, _ in light[0].sums} == {"batch", "loss", "gradient", "update"}
    assert not [name for _, name in light[0].sums if "momentum" in name]
    assert runs.climb("plain", "again").light == 3


def test_a_program_that_ends_early_leaves_the_light_steps_that_it_made(runs: Runs) -> None:
    assert [step.number for step in runs.recording("short").light] == [3, 4, 5, 6]
    assert runs.status("short")["state"] == "recording" and runs.status("short")["light"] == 4


def test_a_difference_after_the_full_steps_is_named(runs: Runs) -> None:
    finding = runs.climb("plain", "damaged").finding
    assert finding is not None
    assert (finding.step, finding.stage, finding.tensor, finding.kind) == (5, "batch", "data/0", "light")
    assert not finding.rounding and "up to step 4 is equal" in difference(finding)


def test_a_nudge_of_rounding_size_is_told_as_such(runs: Runs) -> None:
    finding = runs.climb("plain", "nudged").finding
    assert finding is not None and finding.step == 4 and finding.kind == "light"
    assert finding.stage in ("loss", "gradient", "update") and finding.rounding
    assert parity.compare(runs.root / "plain", runs.root / "nudged").divergence is not None


# ---------------------------------------------------------------- imposing


@pytest.mark.parametrize("style", STYLES)
def test_the_other_runs_batches_and_weights_make_the_runs_equal(runs: Runs, style: str) -> None:
    before = runs.climb(f"{style}_a", f"{style}_b").finding
    assert before is not None and before.stage == "batch"
    given = runs.recording(f"{style}_imposed")
    assert given.not_compared == () and given.imposed["batches"] == 2
    assert len(given.imposed["weights"]) == 5, "four weights, and the state of dropout"
    after = runs.climb(f"{style}_a", f"{style}_imposed")
    assert after.finding is None, after.finding
    assert after.compared == runs.climb(f"{style}_a", f"{style}_a").compared


def test_what_could_not_be_imposed_is_said(runs: Runs) -> None:
    said = " ".join(runs.recording("impossible").not_compared)
    assert "imposing from absent: it cannot be read" in said
