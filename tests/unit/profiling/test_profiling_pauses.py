"""What of a training's time are no steps, and what its one thread does: verdicts and advice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.profiling import Evidence, apply, summarise
from orchestrator.profiling.evidence import Training, evidence_of
from orchestrator.profiling.limits import verdict
from orchestrator.profiling.pauses import Pauses
from orchestrator.profiling.pipeline import Node, Pipeline
from orchestrator.profiling.steps import Steps
from orchestrator.profiling.trace import read
from orchestrator.profiling.usage import Usage

STEPS = Steps(
    count=1000, per_second=500.0, input_wait=0.02, wait_error=0.005, began=0.0, ended=20.0, gap=1e-5, probes=9
)  # fmt: skip
USAGE = Usage(cores=4.0, busy=1.3, cpu=0.33, machine_busy=1.3, waiting=0.0, available=8 << 30)
TRAINING = Training(batch=32, steps_per_execution=1, epochs=10, epoch_steps=100, gpus=0, eager=False)


def evidence(fed: Pipeline | None = None, **given: Any) -> Evidence:
    pauses = Pauses(source="fit", validation=0.0, callbacks=0.0, opening=0.0, script=0.0, thread=0.4)
    return Evidence(
        replace(STEPS, **given.get("steps", {})),
        replace(USAGE, **given.get("usage", {})),
        fed,
        replace(TRAINING, **given.get("training", {})),
        {"gpus": []},
        replace(pauses, **given.get("pauses", {})),
    )


def rules(fed: Pipeline | None = None, **given: Any) -> list[str]:
    return [advice.rule for advice in apply(evidence(fed, **given))]


@pytest.mark.parametrize(
    ("pauses", "limit", "advised"),
    [
        ({"validation": 0.6}, "validation", ["validation"]),
        ({"callbacks": 0.5, "validation": 0.1}, "callbacks", ["callbacks"]),
        ({"opening": 0.4, "passes": 5}, "first batch", ["first batch"]),
        ({"script": 0.7, "source": "batch"}, "script", ["script"]),
        ({"script": 0.7, "source": "function"}, "script", ["script"]),
        ({"script": 0.7}, "nothing", []),  # of fit, that is Keras' own loop
        ({"validation": 0.2}, "nothing", []),
        ({"validation": None, "thread": None}, "nothing", []),
    ],
)
def test_what_is_no_step_is_named(pauses: dict[str, Any], limit: str, advised: list[str]) -> None:
    given = evidence(pauses=pauses)
    found, because = verdict(given)
    assert found == limit and because and because.endswith(".")
    assert [advice.rule for advice in apply(given)] == advised


def test_waiting_for_input_wins_where_it_takes_more() -> None:
    waits = {"input_wait": 0.8}
    assert verdict(evidence(steps=waits, pauses={"validation": 0.4}))[0] == "input"
    assert verdict(evidence(steps=waits, pauses={"validation": 0.6}))[0] == "validation"


def test_a_script_that_waits_for_a_gpu_is_not_accused() -> None:
    """A step's call returns early there, and the script waits when it looks at a number."""
    busy = {"script": 0.7, "source": "function"}
    assert verdict(evidence(pauses=busy, usage={"gpu": 0.6}))[0] == "nothing"


@pytest.mark.parametrize(
    ("given", "advised"),
    [
        ({"training": {"eager": True}}, ["run eagerly"]),
        ({"pauses": {"source": "eager"}}, ["tf.function"]),
        ({}, ["larger calls"]),
        ({"steps": {"per_second": 20.0}}, []),  # 50 ms are no matter of calling
        ({"training": {"steps_per_execution": 32}}, []),
    ],
)
def test_one_thread_that_does_everything(given: dict[str, Any], advised: list[str]) -> None:
    given = {**given, "pauses": {"thread": 0.95, **given.get("pauses", {})}}
    found, because = verdict(evidence(**given))
    assert found == "cpu" and because and "One thread did nearly everything" in because
    assert rules(**given) == advised
    assert verdict(evidence(**given, usage={"cores": 1.0, "cpu": 0.8, "busy": 0.8}))[0] == "nothing"


def test_a_thread_at_work_all_the_time_can_wait_for_little() -> None:
    """Input of very small steps is waited for by a fifth of them; more would not be one thread at work."""
    busy: dict[str, Any] = {"pauses": {"thread": 0.85}}
    assert verdict(evidence(**busy, steps={"input_wait": 0.2}))[0] == "cpu"
    assert rules(**busy, steps={"input_wait": 0.2}) == ["larger calls"]
    assert verdict(evidence(**busy, steps={"input_wait": 0.6}))[0] == "input"


def test_what_is_no_limit_and_no_small_part_is_told_beside() -> None:
    limit, because = verdict(evidence(pauses={"opening": 0.2}))
    assert limit == "nothing" and because
    assert because.endswith("20% of the time went into the first batches of epochs.")


def test_callbacks_are_not_blamed_on_the_number_of_calls() -> None:
    slow = {"gap": 0.0019}
    assert rules(steps=slow) == ["steps per execution"]
    assert rules(steps=slow, pauses={"callbacks": 0.9}) == ["callbacks"]


# ---------------------------------------------------------------- the pipeline's functions


def node(name: str, ms: float, *inputs: int, each: int = 1, size: int = 4096, **more: Any) -> Node:
    given = {"buffered": 0, "parallelism": None, "buffer": None, "copies": 1, **more}
    return Node(name, each * 100, ms / 10, bytes=each * 100 * size, inputs=inputs, **given)


def fed(**of_map: Any) -> Pipeline:
    """A map of 18 ms for each batch, from memory."""
    nodes = (node("Root", 0, 1), node("Prefetch", 0, 2), node("BatchV2", 0.1, 3))
    return Pipeline((*nodes, node("Map", 18, 4, **of_map), node("TensorSlice", 0.1, each=32)), 100, 100, 3)


WAITS: dict[str, Any] = {"steps": {"input_wait": 0.9, "per_second": 50.0}, "usage": {"machine_busy": 3.9}}


def test_nothing_random_is_cached() -> None:
    assert rules(fed(), **WAITS) == ["cache"]
    assert rules(fed(draws=False, python=False), **WAITS) == ["cache"]
    assert rules(fed(draws=True), **WAITS) == []


def test_python_is_cached_on_its_authors_word_alone() -> None:
    (advice,) = apply(evidence(fed(python=True), **WAITS))
    assert advice.rule == "cache of python" and advice.gain is None
    assert "if its Python code gives the same" in advice.change


def test_what_keras_made_of_python_objects_has_no_call_to_edit() -> None:
    nodes = (node("Root", 0, 1), node("Prefetch", 0, 2), node("FlatMap", 0, 3), node("Generator", 18))
    made = Pipeline(nodes, 100, 100, 3)
    assert rules(made, **WAITS) == ["generator", "cache of python"]
    assert rules(made, **WAITS, training={"source": "generator"}) == ["generator"]
    threads = {"source": "PyDataset", "source_name": "Pictures", "workers": 1}
    (advice,) = apply(evidence(made, **WAITS, training=threads))
    assert advice.rule == "workers" and advice.change.startswith("give Pictures workers=4")
    assert rules(made, **WAITS, training={**threads, "workers": 4}) == []
    assert "for a PyDataset" in str(verdict(evidence(made, **WAITS, training=threads))[1])


def test_a_serial_map_that_was_fused_with_its_batch_is_still_one() -> None:
    """Of Python code no gain is predicted: its threads take turns."""
    nodes = (node("Root", 0, 1), node("Prefetch", 0, 2))
    waits = {"steps": WAITS["steps"]}
    for python in (False, True):
        fused = node("MapAndBatch", 18, 3, parallelism=1, python=python)
        made = Pipeline((*nodes, fused, node("Shuffle", 0.1, each=32)), 100, 100, 3)
        (advice,) = apply(evidence(made, **waits))
        assert advice.rule == "parallel map" and (advice.gain is None) == python
    parallel = node("MapAndBatch", 18, 3, parallelism=4)
    assert rules(Pipeline((*nodes, parallel, node("Shuffle", 0.1, each=32)), 100, 100, 3), **waits) == []


def test_cheap_functions_called_for_each_example() -> None:
    cheap = {"each": 512, "size": 48}
    assert "batch first" in rules(_of_many(**cheap), **WAITS)
    assert "batch first" not in rules(_of_many(**cheap, python=True), **WAITS)
    assert "batch first" not in rules(_of_many(**cheap, draws=True), **WAITS)
    assert "batch first" not in rules(_of_many(each=512, size=1 << 20), **WAITS)  # pictures: no small call
    assert "batch first" not in rules(fed(), **WAITS)


def _of_many(**of_map: Any) -> Pipeline:
    given = fed(**of_map)
    return replace(given, nodes=(*given.nodes[:4], node("TensorSlice", 0.1, each=of_map["each"])))


# ---------------------------------------------------------------- memory


def test_memory_that_grows_to_the_end_is_told() -> None:
    grows = {"growing": 50 << 20, "memory_limit": 8 << 30, "peak_memory": 2 << 30}
    (advice,) = apply(evidence(usage=grows, pauses={"passes": 3}))
    assert advice.rule == "growing memory"
    assert "50 MiB a second" in advice.because and "full in 2 minutes" in advice.because
    assert rules(usage=grows, pauses={"passes": 1}) == []  # the first epoch fills buffers
    assert rules(usage={**grows, "growing": 1 << 20}, pauses={"passes": 3}) == []
    kept = Pipeline((node("Root", 0, 1), node("MemoryCache", 0)), 100, 100, 3)
    assert rules(kept, usage=grows, pauses={"passes": 3}) == []


@pytest.mark.parametrize(
    ("peaks", "growing"),
    [
        (range(0, 170, 10), 10),
        ([*range(0, 90, 10), *[80] * 8], None),  # it came to rest
        ([5] * 17, None),
        ([0, 100], None),
    ],
)
def test_growing_is_in_every_quarter(peaks: Any, growing: int | None, tmp_path: Path) -> None:
    samples = [
        {"event": "sample", "t": second, "up": second, "peak": peak} for second, peak in enumerate(peaks)
    ]
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in samples))
    assert evidence_of(read(file)).usage.growing == growing


# ---------------------------------------------------------------- the trace

ALL: dict[str, Any] = {"pid": 7, "source": "fit"}


def test_shares_are_of_the_training(tmp_path: Path) -> None:
    """Ten seconds: 400 steps of 5 ms, in two epochs whose first batch takes half a second longer."""
    lines = [
        {"event": "header", "version": 1, "cores": 4.0},
        {"event": "first_step", "t": 0.0, **ALL, "n": 1, "wall": 3.0, "total": 1},
        {"event": "steps", "t": 10.0, **ALL, "n": 402, "calls": 402, "total": 403, "wall": 3.01,
         "opening": 1.01, "opened": 2, "period_p50": 0.005, "gap_p50": 0.001},
        {"event": "pauses", "t": 10.0, "pid": 7, "validation": 5.0, "callbacks": 0.2, "span": 10.0,
         "ran": 0.5, "queued": 0.5},
        {"event": "pauses", "t": 10.0, "pid": 8, "validation": 5.0},
    ]  # fmt: skip
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = summarise(file)
    assert found.limited_by == "validation" and found.pauses == {
        "validation": 0.5, "callbacks": 0.02, "opening": 0.1, "script": 0.0202, "thread": 0.1,
        "source": "fit", "passes": 2,
    }  # fmt: skip


def test_epochs_of_one_step_have_no_first_batches_to_blame(tmp_path: Path) -> None:
    lines = [
        {"event": "first_step", "t": 0.0, **ALL, "n": 1, "wall": 3.0, "total": 1},
        {"event": "steps", "t": 10.0, **ALL, "n": 300, "calls": 300, "total": 301, "wall": 9.0,
         "opening": 9.0, "opened": 300, "period_p50": 0.03, "gap_p50": 0.001},
        {"event": "pauses", "t": 10.0, "pid": 7},
    ]  # fmt: skip
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = summarise(file)
    assert found.pauses and found.pauses["opening"] == 0.0
