"""The step clock in real trainings: it tells steps and waits, and changes no number."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from orchestrator.profiling import IoSummary, summarise
from orchestrator.runtime.steps.log import StepLog
from tests.nightly import NIGHTLY

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = Path(__file__).parent.with_name("stepclock_jobs.py")

FIT = {
    "slow input": 60,
    "slow input, three steps a call": 60,
    "slow step, fast input": 120,
    "deterministic": 60,
    "own train step": 60,
    "failing input": 8,
    "train on batch": 20,
}
LOOPS: dict[str, int | None] = {"eager loop": 60, "function loop": 60}
if NIGHTLY:
    FIT |= {
        "slow input, prefetched": 60,
        "slow input, some steps an epoch": 18,
        "validation": 60,
        "run eagerly": 20,
        "arrays": 20,
    }
    LOOPS |= {"epoch in the graph": None}


@pytest.fixture(scope="module")
def trainings(tf_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every case gave, with the clock and without."""
    place = tmp_path_factory.mktemp("traces")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ORCH_")}
    done = subprocess.run(
        [tf_python, "-W", "ignore", SCRIPT, place, ROOT, *FIT, *LOOPS],
        env=environment,
        capture_output=True,
        timeout=840,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def summary(trainings: dict[str, Any], case: str) -> IoSummary:
    return summarise(Path(trainings[case]["trace"]))


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("case", [*FIT, *LOOPS])
def test_weights_optimizer_and_generators_end_bit_identical(trainings: dict[str, Any], case: str) -> None:
    assert trainings[case]["with"] == trainings[case]["without"]


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(("case", "steps"), [*FIT.items(), *LOOPS.items()])
def test_steps_are_counted(trainings: dict[str, Any], case: str, steps: int | None) -> None:
    assert summary(trainings, case).steps == steps


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_planted_slow_pipeline_waits_and_a_fast_one_does_not(trainings: dict[str, Any]) -> None:
    slow = summary(trainings, "slow input")
    fast = summary(trainings, "slow step, fast input")
    loop = summary(trainings, "function loop")
    assert slow.input_wait and slow.input_wait > 0.5 and slow.limited_by == "input"
    assert fast.input_wait is not None and fast.input_wait < slow.input_wait / 2  # a busy computer adds some
    assert loop.input_wait and loop.input_wait > 0.02  # a slow computer's steps leave input time to be ready
    assert slow.steps_per_s and slow.steps_per_s < 20.5  # a batch takes fifty milliseconds at the least


@pytest.mark.slow
@pytest.mark.tensorflow
def test_many_steps_were_probed_so_that_equal_numbers_mean_something(trainings: dict[str, Any]) -> None:
    probed = {case: _probed(Path(trainings[case]["trace"])) for case in FIT}
    assert probed.pop("train on batch") == 0
    assert all(probed.values()), probed


def _probed(trace: Path) -> int:
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    return sum(line["probed"] for line in lines if line["event"] == "steps")


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("case", [*FIT, "eager loop", "function loop"])
def test_what_tf_data_knows_is_read_under_fit(trainings: dict[str, Any], case: str) -> None:
    """Per node: elements, time, bytes, buffered, parallelism; by the stock iterator's own model."""
    lines = _lines(trainings, case, "pipeline")
    assert lines and not any("unknown" in line for line in lines)
    for line in lines:
        root, *others = line["nodes"]
        assert root["name"] == "Root" and root["n"] == line["batches"] and others
        assert all(node["s"] >= 0 and node["bytes"] >= 0 and node["buffered"] >= 0 for node in others)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_planted_sleep_is_found_in_its_node(trainings: dict[str, Any]) -> None:
    """Fifty milliseconds in the map of each batch, one at a time, behind a shuffle of a hundred."""
    last = _lines(trainings, "slow input", "pipeline")[-1]
    busiest = max(last["nodes"], key=lambda node: node["s"])
    assert "Map" in busiest["name"] and 0.04 < busiest["s"] / busiest["n"] < 2
    lines = _lines(trainings, "slow input", "pipeline")
    assert any(node["name"] == "Shuffle" and node["buffered"] for line in lines for node in line["nodes"])
    assert {line["epoch_batches"] for line in lines} <= {None, 20} and lines[-1]["epoch_batches"] == 20


@pytest.mark.slow
@pytest.mark.tensorflow
def test_what_is_trained_is_told(trainings: dict[str, Any]) -> None:
    (told,) = _lines(trainings, "slow input", "model")
    assert (told["parameters"], told["policy"], told["optimizer"]) == (4810, "float32", "Adam")
    assert (told["gpus"], told["growth"], told["steps_per_execution"]) == (0, None, 1)


def _lines(trainings: dict[str, Any], case: str, event: str) -> list[dict[str, Any]]:
    lines = map(json.loads, Path(trainings[case]["trace"]).read_text().splitlines())
    return [line for line in lines if line["event"] == event]


# ---------------------------------------------------------------- the lines


def test_steps_and_pulls_are_summed_up(tmp_path: Path) -> None:
    log = StepLog(str(tmp_path / "trace"))
    log.step("fit", 10.0, 3.0, 1, None, first=True)
    for number in range(10):
        log.step("fit", 20.0 + number, 0.5, 2, 0.25 if number % 2 else None)
    log.pull(0.0, 1.0)
    log.pull(9.0, 1.0)
    log.flush()
    log.flush()
    first, steps, pulls, pauses = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    assert (first["event"], first["n"], first["wall"]) == ("first_step", 1, 3.0)
    assert (steps["n"], steps["calls"], steps["wall"], steps["probed"]) == (20, 10, 5.0, 5)
    assert (steps["period_p50"], steps["gap_p50"], steps["wait"]) == (0.5, 0.5, 1.25)
    assert (pulls["n"], pulls["wait"], pulls["span"]) == (2, 2.0, 10.0)
    assert pauses["event"] == "pauses" and pauses["span"] >= pauses["ran"] >= 0


def test_what_comes_after_the_last_step_is_no_training(tmp_path: Path) -> None:
    """Half a second of it, and a validation: neither counts."""
    log = StepLog(str(tmp_path / "trace"))
    log.step("fit", perf_counter(), 0.0, 1, None, first=True)
    log.pause("validation", 2.0)
    log.step("fit", perf_counter(), 0.0, 1, None)
    log.pause("validation", 30.0)
    time.sleep(0.5)
    ended = time.time()
    log.flush()
    _, steps, pauses = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    assert steps["t"] <= ended - 0.4 and pauses["validation"] == 2.0


def test_a_forked_child_writes_nothing_of_its_parents(tmp_path: Path) -> None:
    log = StepLog(str(tmp_path / "trace"))
    log.step("fit", 1.0, 0.5, 1, None)
    child = os.fork()
    if child == 0:
        log.flush()
        os._exit(0)
    os.waitpid(child, 0)
    assert not (tmp_path / "trace").exists()


def test_a_full_disk_is_not_the_clocks_trouble() -> None:
    log = StepLog("/dev/full")
    log.step("fit", 1.0, 0.5, 1, None)
    log.flush()
