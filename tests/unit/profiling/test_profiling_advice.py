"""The table of advice: each rule where the evidence earns it, its prediction, and silence elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.profiling import Advice, Evidence, apply
from orchestrator.profiling.devices import Disk, Gpu
from orchestrator.profiling.evidence import Training
from orchestrator.profiling.flow import Change, pace
from orchestrator.profiling.pipeline import Node, Pipeline
from orchestrator.profiling.rules import RULES
from orchestrator.profiling.steps import Steps
from orchestrator.profiling.usage import Usage

BATCHES = 100
STEPS = Steps(
    count=1000, per_second=50.0, input_wait=0.5, wait_error=0.01, began=0.0, ended=20.0, probes=50,
    processes=1, gap=0.0001, calls=1000,
)  # fmt: skip
"""A step of 20 ms, ten of which are spent waiting."""

USAGE = Usage(
    cores=8.0, busy=1.5, cpu=0.19, machine_busy=1.5, waiting=0.0, throttled=0.0, steal=0.0,
    peak_memory=1 << 30, memory_limit=16 << 30,
    available=8 << 30, faults=0.0, swapping=0.0, reading=0.0, network=0.0, asked=1e6,
    read_calls=100.0,
)  # fmt: skip
TRAINING = Training(policy="float32", batch=32, steps_per_execution=1, epochs=10, epoch_steps=500, gpus=0)


def node(name: str, ms: float, *inputs: int, each: int = 1, **more: Any) -> Node:
    """`ms` of work for each batch, `each` elements of 4 KiB for each batch."""
    given = {"bytes": each * BATCHES * 4096, "buffered": 0, "parallelism": None, "buffer": None, "copies": 1}
    return Node(name, each * BATCHES, ms * BATCHES / 1000, inputs=inputs, **{**given, **more})


def pipeline(*nodes: Node) -> Pipeline:
    return Pipeline((node("Root", 0, 1), *nodes), BATCHES, 500, 2)


SERIAL = pipeline(
    node("Prefetch", 0.1, 2),
    node("Map", 18, 3),
    node("BatchV2", 1, 4),
    node("Shuffle", 0.4, 5, each=32),
    node("TensorSlice", 0.5, each=32),
)


def told(fed: Pipeline | None = SERIAL, *, steps: Any = None, usage: Any = None, training: Any = None) -> Any:
    evidence = Evidence(
        replace(STEPS, **(steps or {})),
        replace(USAGE, **(usage or {})),
        fed,
        replace(TRAINING, **(training or {})),
        {"gpus": []},
    )
    return {advice.rule: advice for advice in apply(evidence)}


def test_the_table_is_whole() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    for rule in RULES:
        assert rule.change and rule.formula and rule.parity.endswith(".")


# ---------------------------------------------------------------- silence


@pytest.mark.parametrize(
    "quiet",
    [
        {"steps": {"input_wait": 0.02}},
        {"steps": {"input_wait": 0.06, "wait_error": 0.04}},  # not more than it is unsure of
        {"steps": {"input_wait": None}},
        {"steps": {"per_second": 20000.0, "gap": 1e-6}},  # a wait of 25 µs is what pulling costs
        {"steps": {"count": 45, "ended": 1.0}},
        {"fed": None},
    ],
)
def test_nothing_is_advised_where_nothing_limits(quiet: dict[str, Any]) -> None:
    assert told(**quiet) == {}


def test_no_parallel_map_without_idle_cores() -> None:
    assert "parallel map" in told()
    assert "parallel map" not in told(usage={"machine_busy": 7.8})
    assert "parallel map" not in told(usage={"waiting": 6.0})
    assert "parallel map" not in told(usage={"cores": 1.0, "busy": 0.4, "machine_busy": 0.4})


def test_a_gain_below_what_runs_differ_by_is_not_told() -> None:
    assert "steps per execution" not in told(steps={"input_wait": 0.0, "gap": 0.0009})


# ---------------------------------------------------------------- the input


def test_parallel_map_is_predicted_by_the_slowest_stage() -> None:
    """18 ms over eight cores are 2.25; the step's own work, ten, is then the slowest."""
    advice: Advice = told()["parallel map"]
    assert (advice.step_now_s, advice.step_after_s, advice.gain) == (0.02, 0.01, 2.0)
    assert advice.trial == {"map": -1, "node": 2} and advice.node == ".map(…)"
    assert "90% of the pipeline's work is in .map(…), one element at a time" in advice.because


def test_cores_bound_what_parallel_maps_give() -> None:
    """Thirty core-milliseconds of work in each step, on two cores: not below 15 ms."""
    advice = told(usage={"cores": 2.0, "busy": 1.4, "cpu": 0.7, "machine_busy": 1.4})["parallel map"]
    assert advice.step_after_s == 0.014


def test_prefetch_where_nothing_runs_ahead() -> None:
    bare = pipeline(node("Map", 9, 2), node("BatchV2", 1, 3), node("TensorSlice", 0, each=32))
    advice = told(bare)["prefetch"]
    assert (advice.step_after_s, advice.gain) == (0.01, 2.0)  # max(10 of compute, 10 of input)
    assert "prefetch" not in told(SERIAL)


ARRAYS = (
    node("Prefetch", 4, 2), node("ParallelMapV2", 8, 3, parallelism=1), node("Zip", 1, 4, 5),
    node("FlatMap", 2, 6, 7), node("ForeverRepeat", 1, 8), node("Prefetch", 1, 9), node("TensorSlice", 0.5),
    node("FromTensor", 0.1), node("Map", 1, 10), node("Range", 0.1),
)  # fmt: skip
"""What Keras makes of `fit(x, y)`."""


@pytest.mark.parametrize(
    ("nodes", "keras"),
    [
        (ARRAYS, True),
        ((*ARRAYS[:8], node("Map", 1)), True),  # a source that was read to its end is missing
        ((*ARRAYS[:8], node("Map", 1, 10), node("TFRecord", 0.1)), False),
        ((node("Batch", 4, 2), *ARRAYS[1:]), False),
        ((*ARRAYS[:3], node("Map", 2, 6, 7), *ARRAYS[4:]), False),
    ],
)
def test_a_pipeline_that_keras_made_of_arrays_is_known(nodes: tuple[Node, ...], keras: bool) -> None:
    assert pipeline(*nodes).of_arrays is keras


def test_nobody_is_told_to_edit_what_keras_made_of_arrays() -> None:
    """A pipeline of the script's own that is much the same is told; general advice is told of both."""
    own = pipeline(*ARRAYS[:3], node("Filter", 2, 6, 7), *ARRAYS[4:])
    assert {"cache", "parallel map"} <= set(told(own))
    assert not {"cache", "parallel map", "prefetch", "parallel reads", "staging"} & set(
        told(pipeline(*ARRAYS))
    )
    slow = {"gap": 0.005}
    assert "steps per execution" in told(pipeline(*ARRAYS), steps=slow)


READING = pipeline(
    node("Prefetch", 0, 2), node("BatchV2", 1, 3), node("FlatMap", 1, 4, 5, each=32), node("TensorSlice", 0),
    node("TFRecord", 16, each=32),
)  # fmt: skip


def test_parallel_reads() -> None:
    advice = told(READING)["parallel reads"]
    assert advice.trial == {"interleave": 4, "node": 3}
    assert advice.step_after_s == 0.01 and "cycle_length is fixed" in advice.parity


def test_parallel_reads_do_not_help_a_disk_at_its_cap() -> None:
    full = Disk("nvme0n1", 1.2e8, 900, 1.0, 9.0, 0.97, "gp3 at its baseline")
    found = told(READING, usage={"disk": full, "reading": 1.2e8})
    assert "parallel reads" not in found
    assert found["staging"].trial == {"stage": 32 * 4096 * 500}
    assert "nvme0n1 gives 97% of what it can (gp3 at its baseline)" in found["staging"].because
    assert "0.0655 GB" in found["staging"].change


def test_staging_of_what_comes_over_the_network() -> None:
    assert "staging" not in told(READING)
    found = told(READING, usage={"network": 5e7, "asked": 6e7})
    assert "47.7 MiB/s come over the network" in found["staging"].because


def test_cache_where_it_is_deterministic_and_fits() -> None:
    fixed = pipeline(
        node("Prefetch", 0, 2), node("Shuffle", 0, 3, each=32), node("Map", 19, 4, each=32),
        node("TensorSlice", 0.5, each=32),
    )  # fmt: skip
    advice = told(fixed)["cache"]
    assert advice.trial == {"cache": 3, "bytes": 32 * 4096 * 500}
    assert advice.step_after_s == 0.01 and "62.5 MiB in every epoch" in advice.because
    assert "cache" not in told(fixed, usage={"available": 64 << 20})
    assert "cache" not in told(fixed, training={"epochs": 1})
    assert told(SERIAL).get("cache") is None  # all but the source comes after the shuffle


def test_no_cache_of_what_is_in_memory_already() -> None:
    """Batches of arrays: a cache would hold the same a second time."""
    arrays = pipeline(
        node("Prefetch", 0, 2), node("Shuffle", 0, 3), node("BatchV2", 19, 4), node("TensorSlice", 1, each=32)
    )
    assert "cache" not in told(arrays)
    read = pipeline(
        node("Prefetch", 0, 2), node("Shuffle", 0, 3), node("BatchV2", 19, 4), node("TFRecord", 1, each=32)
    )
    assert "cache" in told(read)


def test_cache_gives_cores_back_where_the_run_itself_has_none_left() -> None:
    """Two busy cores, 40 ms of them a step, 18 by the map: the step keeps (40 − 18) ÷ 40 of its own ten."""
    fixed = pipeline(node("Prefetch", 0, 2), node("Map", 18, 3), node("TensorSlice", 0, each=32))
    usage = {"cores": 2.0, "busy": 2.0, "cpu": 1.0, "machine_busy": 2.0}
    assert told(fixed, usage=usage)["cache"].step_after_s == 0.011
    neighbours = {**usage, "busy": 1.0, "cpu": 0.5, "waiting": 1.0}
    assert told(fixed, usage=neighbours)["cache"].step_after_s == 0.01


def test_small_files() -> None:
    files = pipeline(
        node("Prefetch", 0, 2), node("BatchV2", 1, 3),
        node("Map", 17, 4, each=32, bytes=32 * BATCHES * 50_000),
        node("TensorSlice", 0, each=32, bytes=32 * BATCHES * 40),
    )  # fmt: skip
    reads = {"asked": 32 * 50 * 20_000.0, "read_calls": 32 * 50 * 2.0}
    advice = told(files, usage=reads)["small files"]
    assert "of 19.5 KiB on average, with 2.0 reads each" in advice.because and advice.gain is None
    assert "small files" not in told(files, usage={**reads, "asked": 32 * 50 * 5e6})
    assert "small files" not in told(files, usage={**reads, "read_calls": 1.0})  # held in memory already


def test_generator() -> None:
    slow = pipeline(node("Prefetch", 0, 2), node("BatchV2", 1, 3), node("Generator", 18, each=32))
    assert told(slow)["generator"].trial is None
    assert "generator" not in told()


# ---------------------------------------------------------------- the machine and the loop


def test_cores_by_the_work_of_a_step() -> None:
    """Two busy cores: 40 ms of work a step, ten of compute: four cores."""
    advice = told(usage={"cores": 2.0, "busy": 2.0, "cpu": 1.0, "machine_busy": 2.0})["cores"]
    assert "4 cores or more" in advice.change and (advice.amount, advice.gain) == (4, 2.0)
    neighbours = {"cores": 2.0, "busy": 1.0, "cpu": 0.5, "machine_busy": 2.0, "waiting": 1.5}
    assert "cores" not in told(usage=neighbours)


def test_threads_of_the_run_itself() -> None:
    crowd = {"busy": 7.9, "cpu": 0.99, "machine_busy": 8.0, "waiting": 24.0}
    assert "31.9 threads on average wanted 8 cores" in told(usage=crowd)["threads"].because
    assert "threads" not in told(usage={**crowd, "busy": 3.0})


@pytest.mark.parametrize(
    ("usage", "rule", "says"),
    [
        ({"swapping": 5e7, "swap": 2 << 30}, "memory", "2 GiB of it were swapped out"),
        ({"faults": 500.0}, "memory", "500 pages"),
        ({"peak_memory": int(15.6 * 2**30)}, "memory", "97% of the memory"),
        ({"throttled": 2.0}, "quota", "25% of the time"),
        ({"steal": 1.6}, "steal", "20% of its cores"),
    ],
)
def test_the_machine(usage: dict[str, Any], rule: str, says: str) -> None:
    assert says in told(usage=usage)[rule].because


def test_how_much_memory() -> None:
    advice = told(usage={"swapping": 5e7, "swap": 8 << 30, "peak_memory": 15 << 30})["memory"]
    assert "29 GiB of memory or more" in advice.change


def test_steps_per_execution_where_the_loop_takes_the_time() -> None:
    loop = {"per_second": 1000.0, "gap": 0.0004, "input_wait": 0.0}
    advice = told(steps=loop)["steps per execution"]
    assert advice.step_after_s == round(0.001 - 0.0004 * 31 / 32, 6)
    assert "steps per execution" not in told(steps=loop, training={"steps_per_execution": 32})


BUSY = Gpu("NVIDIA A10G", 0.97, 10 << 30, 24 << 30, 200.0, 300.0, 0.0)
ON_GPU = {"gpus": 1, "growth": True}


def test_mixed_precision() -> None:
    fed = {"input_wait": 0.01}
    assert "mixed precision" in told(steps=fed, usage={"gpus": [BUSY]}, training=ON_GPU)
    old = {"gpus": [replace(BUSY, name="Tesla P100-PCIE-16GB")]}
    assert "mixed precision" not in told(steps=fed, usage=old, training=ON_GPU)
    assert "mixed precision" not in told(
        steps=fed, usage={"gpus": [BUSY]}, training={**ON_GPU, "policy": "mixed_float16"}
    )
    assert "full precision" in told(training={"policy": "mixed_float16"})


def test_batch_size_while_the_gpu_has_room() -> None:
    idle = {"gpus": [replace(BUSY, utilisation=0.3)]}
    fed = {"input_wait": 0.01}
    assert "64 in place of 32" in told(steps=fed, usage=idle, training=ON_GPU)["batch size"].change
    assert "batch size" not in told(usage=idle, training=ON_GPU)  # it waits for input
    assert "batch size" not in told(steps=fed, usage=idle, training={**ON_GPU, "growth": False})


def test_memory_growth_where_processes_share_a_gpu() -> None:
    full = {"gpus": [replace(BUSY, memory=23 << 30)]}
    shared = {"gpus": 1, "growth": False}
    assert "memory growth" in told(steps={"processes": 2}, usage=full, training=shared)
    assert "memory growth" not in told(usage=full, training=shared)


def test_a_gpu_that_tensorflow_does_not_see() -> None:
    evidence = Evidence(STEPS, USAGE, None, TRAINING, {"gpus": ["Tesla T4"]})
    assert [advice.rule for advice in apply(evidence)] == ["idle gpu"]


# ---------------------------------------------------------------- pipelines


def test_segments_run_side_by_side() -> None:
    chain = pipeline(
        node("Prefetch", 1, 2), node("ParallelMapV2", 12, 3, parallelism=4), node("BatchV2", 2, 4),
        node("ParallelInterleaveV4", 2, 5, 6, parallelism=2), node("TensorSlice", 0), node("TFRecord", 8),
    )  # fmt: skip
    assert pace(chain) == pytest.approx(0.005)  # (2 + 8) ÷ 2; the map takes 3, the batch 2
    assert pace(chain, Change(parallel={4: 10})) == pytest.approx(0.003)
    assert pace(chain, Change(without=frozenset(chain.below(2)))) == pytest.approx(0.001)


def test_the_batch_is_known_by_what_goes_in() -> None:
    assert SERIAL.batch == 32 and pipeline(node("TensorSlice", 1)).batch is None
