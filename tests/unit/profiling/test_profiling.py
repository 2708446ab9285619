"""From a trace's lines to a summary and what limited the run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.profiling import Evidence, IoSummary, summarise
from orchestrator.profiling.devices import Disk
from orchestrator.profiling.limits import verdict
from orchestrator.profiling.pauses import Pauses
from orchestrator.profiling.steps import Steps
from orchestrator.profiling.usage import Usage

HEADER = {"event": "header", "version": 1, "cores": 4.0, "memory": 1000}
ZERO = dict.fromkeys(
    ("cpu_user", "cpu_system", "read", "written", "asked_read", "asked_written", "waited",
     "major_faults", "received", "sent", "throttled", "own_cpu", "peak"), 0
)  # fmt: skip


def sample(up: float, **values: Any) -> dict[str, Any]:
    return {"t": 1000 + up, "event": "sample", "up": up, **ZERO, "gpus": None, **values}


def steps(t: float, **values: Any) -> dict[str, Any]:
    line = {"t": t, "pid": 7, "event": "steps", "source": "fit", "n": 10, "calls": 10, "gap_p50": 0.0}
    return {**line, "period_p50": 0.1, "probed": 0, "probed_wall": 0.0, "wait": 0.0, **values}


def first(t: float, **values: Any) -> dict[str, Any]:
    return {"t": t, "pid": 7, "event": "first_step", "source": "fit", "n": 1, "wall": 3.0, **values}


def of(tmp_path: Path, *lines: dict[str, Any]) -> IoSummary:
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return summarise(file)


def test_no_trace_is_no_facts(tmp_path: Path) -> None:
    facts = asdict(summarise(tmp_path / "none.jsonl"))
    assert facts.pop("because") and not any(facts.values())


def test_totals_and_rates(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        HEADER,
        sample(0),
        sample(10, cpu_user=10, cpu_system=2, asked_read=500, read=100, asked_written=50, written=40,
               received=3, sent=4, waited=1, peak=600, own_cpu=0.02),
        {"t": 1010.5, "event": "end", "up": 10.5, "peak": 600},
    )  # fmt: skip
    assert found == IoSummary(
        bytes_read=500, bytes_written=50, disk_read=100, disk_written=40, cache_hit=0.8, network_bytes=7,
        peak_memory=600, memory=1000, cores=4.0, cpu_utilisation=0.3, cpu_waiting=0.1, cpu_throttled=0.0,
        wall_s=10.5, sampler_cpu=0.002,
        limited_by="nothing", because="Nothing that is measured was at its limit: 30% of 4 cores busy.",
        unknown=(
            "Steps: they are counted in TensorFlow and Keras alone. The numbers are of the whole run.",
        ),
    )  # fmt: skip


@pytest.mark.parametrize(("before", "mostly"), [(4.0, False), (6.0, True)])
def test_start_up_ends_where_the_first_step_begins(before: float, mostly: bool, tmp_path: Path) -> None:
    began = first(1000 + before + 3, wall=3.0)
    found = of(tmp_path, HEADER, sample(0), began, sample(10), steps(1010))
    assert (found.startup_s, found.mostly_startup) == (before, mostly)
    assert of(tmp_path, HEADER, sample(0), sample(10), steps(1010)).startup_s is None


def test_bytes_that_came_by_mapped_files_count(tmp_path: Path) -> None:
    assert of(tmp_path, HEADER, sample(1, asked_read=5, read=900)).bytes_read == 900


def test_rates_are_those_of_the_training(tmp_path: Path) -> None:
    """Start-up kept one core busy for ten seconds, then the training all four."""
    found = of(
        tmp_path, HEADER, sample(0), sample(10, cpu_user=10), first(1010), sample(11, cpu_user=14),
        sample(19, cpu_user=46), steps(1020), sample(20, cpu_user=50),
    )  # fmt: skip
    assert found.cpu_utilisation == 1.0
    assert found.limited_by == "cpu"


def test_steps(tmp_path: Path) -> None:
    found = of(
        tmp_path, first(1000), steps(1001, n=10, calls=10, period_p50=0.1),
        steps(1002, n=80, calls=80, period_p50=0.0125), steps(1003, n=1, calls=1, period_p50=30.0),
    )  # fmt: skip
    assert (found.steps, found.steps_per_s) == (92, 80.0)


def test_the_process_that_trains_is_the_one_with_most_steps(tmp_path: Path) -> None:
    found = of(tmp_path, steps(1001, pid=8, n=3, period_p50=9.0), steps(1002, n=50), steps(1003, n=50))
    assert (found.steps, found.steps_per_s) == (100, 10.0)


@pytest.mark.parametrize(
    ("lines", "share"),
    [
        ([steps(1, probed=5, probed_wall=1.0, wait=0.8)], 0.8),
        ([steps(1, probed=5, probed_wall=1.0, wait=0.8, gap_p50=0.2)], 0.4),
        ([steps(1, probed=2, probed_wall=1.0, wait=0.8)], None),
        (
            [steps(1, probed=2, probed_wall=1.0, wait=1.0), steps(2, probed=2, probed_wall=3.0, wait=0.0)],
            0.25,
        ),
        ([steps(1)], None),
        ([{"event": "pulls", "n": 30, "wait": 2.0, "span": 8.0}], 0.25),
        ([{"event": "pulls", "n": 2, "wait": 2.0, "span": 8.0}], None),
        ([{"event": "pulls", "n": 30, "wait": 0.0, "span": 0.0}], None),
    ],
)
def test_input_wait(tmp_path: Path, lines: list[dict[str, Any]], share: float | None) -> None:
    assert of(tmp_path, *({"pid": 7, **line} for line in lines)).input_wait == share


def test_gpus(tmp_path: Path) -> None:
    gpus = [{"utilisation": 0.9}, {"utilisation": 1.0}, {"utilisation": None}]
    found = of(tmp_path, HEADER, sample(0, gpus=gpus), sample(11, gpus=gpus))
    assert (found.gpu_utilisation, found.limited_by) == (0.95, "gpu")


QUIET = Steps(count=1000, input_wait=0.01, probes=50, wait_error=0.001, began=0.0, ended=100.0)
FREE = Usage(
    cores=4, busy=1.2, cpu=0.3, memory_limit=1000, peak_memory=500, waiting=0.0, throttled=0.0, steal=0.0,
    reading=0, network=0, faults=0, swapping=0.0,
)  # fmt: skip
DISK = Disk("sda", rate=1e8, ops=100, busy=0.9, cap=0.95, basis="gp3 at its baseline")


@pytest.mark.parametrize(
    ("steps_", "usage", "limit", "says"),
    [
        ({}, {}, "nothing", "30% of 4 cores"),
        ({}, {"peak_memory": 960}, "memory", "96% of the memory"),
        ({"input_wait": 0.9}, {"peak_memory": 960}, "memory", "96%"),
        ({}, {"faults": 300.0}, "memory", "300 pages"),
        ({}, {"swapping": 2e8, "swap": 5}, "memory", "191 MiB a second"),
        ({}, {"swapping": 2e8}, "nothing", ""),  # somebody else's swap
        ({}, {"peak_memory": 960, "memory_limit": None}, "nothing", ""),
        ({"input_wait": 0.5}, {}, "input", "50% of their time, while cores were idle"),
        ({"input_wait": 0.5}, {"cpu": 0.95}, "input", "no core was idle"),
        ({"input_wait": 0.5}, {"waiting": 3.0}, "input", "no core was idle"),
        ({"input_wait": 0.5}, {"reading": 2e8}, "input", "191 MiB/s came from the disk"),
        ({"input_wait": 0.5}, {"disk": DISK}, "input", "the disk sda gave 95% of what it can (gp3 at"),
        ({"input_wait": 0.5}, {"cpu": None, "busy": None}, "input", "of their time."),
        ({"input_wait": 0.5}, {"machine_busy": 3.9}, "input", "50% of their time."),
        (
            {"input_wait": 0.5},
            {"waiting": 1.5, "machine_busy": 3.9},
            "input",
            "while others on the machine kept",
        ),
        ({}, {"reading": 1e8, "machine_busy": 3.9}, "nothing", ""),
        ({}, {"reading": 1e8, "machine_busy": 3.9, "machine_cores": 16}, "disk", "Cores were idle"),
        ({"input_wait": 0.14}, {}, "nothing", ""),
        ({}, {"gpu": 0.9}, "gpu", "90%"),
        ({"input_wait": 0.3}, {"gpu": 0.9}, "input", ""),
        ({}, {"cpu": 0.9}, "cpu", "90% of 4 cores"),
        ({}, {"waiting": 2.5}, "cpu", "this run kept 1.2 of 4 busy, and its threads waited for a core 2.5 s"),
        ({}, {"throttled": 1.0}, "quota", "A quota"),
        ({}, {"steal": 1.0}, "other machines", "Other machines on the same host took 25%"),
        ({}, {"cpu": 0.25, "busy": 1.0}, "cpu", "One of 4 cores was wanted:"),
        ({}, {"waiting": 2.5, "machine_busy": 3.9}, "other programs", "3.7 cores and had 1.2"),
        (
            {},
            {"cpu": 0.05, "busy": 0.2, "waiting": 0.8, "machine_busy": 3.9},
            "other programs",
            "had 0.2: other",
        ),
        ({}, {"cpu": 0.05, "busy": 0.2, "waiting": 0.8}, "cpu", "had to wait for 80%"),
        ({}, {"cpu": 0.2, "busy": 0.8, "waiting": 0.2, "machine_busy": 3.9}, "cpu", "had to wait for 20%"),
        ({}, {"cpu": 0.99, "busy": 3.9, "waiting": 3.0, "machine_busy": 4.0}, "cpu", "99% of 4 cores"),
        ({}, {"reading": 1e8}, "disk", "95.4 MiB/s"),
        ({}, {"disk": DISK}, "disk", "95%"),
        ({}, {"network": 1e8}, "network", "95.4 MiB/s"),
        ({}, {"cpu": 0.6, "reading": 1e8}, "nothing", ""),
        ({"input_wait": None}, {}, None, "could not be measured"),
        ({"input_wait": None, "count": None}, {}, "nothing", ""),
        ({}, {"cpu": None}, None, "too short"),
    ],
)
def test_limits(steps_: dict[str, Any], usage: dict[str, Any], limit: str | None, says: str) -> None:
    found, because = verdict(Evidence(replace(QUIET, **steps_), replace(FREE, **usage)))
    assert found == limit
    assert because and says in because and because.endswith(".")


@pytest.mark.parametrize(
    ("steps_", "usage", "limit"),
    [
        ({}, {}, None),
        ({}, {"cpu": 0.95}, None),
        ({}, {"gpu": 0.95}, None),
        ({"input_wait": 0.25}, {}, None),  # over the threshold, and still not sure
        ({"input_wait": 0.9, "probes": 3}, {}, None),
        ({"input_wait": 0.9, "wait_error": 0.35}, {}, None),
        ({"input_wait": 0.9}, {}, "input"),
        ({"input_wait": 0.9, "wait_error": None}, {}, "input"),
        ({}, {"peak_memory": 990}, "memory"),
        ({"ended": 60.0}, {"cpu": 0.95}, "cpu"),  # few steps, and long ones
        ({"count": 200}, {"cpu": 0.95}, "cpu"),
    ],
)
def test_a_short_run_gets_a_verdict_only_where_no_chance_made_it(
    steps_: dict[str, Any], usage: dict[str, Any], limit: str | None
) -> None:
    few = replace(QUIET, count=45, ended=1.5, probes=8)
    found, because = verdict(Evidence(replace(few, **steps_), replace(FREE, **usage)))
    assert found == limit
    assert because and (limit or "45 steps in 1.5 s are too few" in because)


@given(
    busy=st.floats(0, 4),
    waiting=st.floats(0, 8),
    others=st.none() | st.floats(0, 4),
    thread=st.none() | st.floats(0, 1),
    throttled=st.floats(0, 4),
    steal=st.floats(0, 4),
)
def test_a_run_is_limited_by_the_cpu_only_where_the_numbers_beside_it_show_that(
    busy: float, waiting: float, others: float | None, thread: float | None, throttled: float, steal: float
) -> None:
    machine_busy = None if others is None else min(4.0, busy + others)
    usage = replace(FREE, busy=busy, cpu=busy / 4, waiting=waiting, machine_busy=machine_busy)
    told = Evidence(QUIET, replace(usage, throttled=throttled, steal=steal), pauses=Pauses(thread=thread))
    limit, _ = verdict(told)
    if limit == "cpu":
        had_it = busy >= 0.75 * (busy + waiting)
        nobody_else = told.others <= max(0.2, min(1.0, waiting) / 2)
        assert had_it or nobody_else or busy >= 0.85 * 4
        assert throttled / 4 < 0.1 and steal / 4 < 0.1
    if limit == "other programs":
        assert told.others > 0.2 and waiting > busy / 4 and busy < 0.85 * 4


def test_a_run_without_steps_is_short_by_its_seconds(tmp_path: Path) -> None:
    """A loop of NumPy that took a second, beside others that kept both cores."""
    busy = {"busy": [100, 100, 100, 100]}
    found = of(
        tmp_path, HEADER, sample(0, **busy), sample(1.1, cpu_user=0.2, waited=0.9, **busy),
        {"t": 1001.2, "event": "end", "up": 1.2, "peak": 5},
    )  # fmt: skip
    assert (found.limited_by, found.short, found.advice) == (None, True, ())
    assert found.because == "A run of 1.2 s is too short to tell what limited it: that takes 10 s."


def test_pages_that_a_start_up_reads_are_no_shortage_of_memory() -> None:
    alone = Evidence(Steps(), replace(FREE, faults=900.0), wall=60.0)
    assert verdict(alone)[0] == "nothing"
    assert verdict(replace(alone, steps=QUIET))[0] == "memory"


def test_the_peak_is_that_of_the_end_where_samples_missed_it(tmp_path: Path) -> None:
    end = {"t": 1000.3, "event": "end", "up": 0.3, "peak": 900}
    assert of(tmp_path, HEADER, sample(0, peak=100), end).peak_memory == 900


def test_a_training_between_two_samples_has_no_rates(tmp_path: Path) -> None:
    """Those of the start-up would stand beside its steps."""
    found = of(
        tmp_path, HEADER, sample(0), sample(10, cpu_user=10), first(1010.1), steps(1010.2),
        sample(12.9, cpu_user=30),
    )  # fmt: skip
    assert found.cpu_utilisation is None and found.limited_by is None and found.short


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    squares = [0.0125, 0.04, 0.2]  # of five probes of 0.2 s: four waited 25 ms, one 100 ms
    found = of(
        tmp_path, HEADER, sample(0), first(1000.5), sample(1, cpu_user=1),
        steps(1002, n=44, probed=5, probed_wall=1.0, wait=0.2, squares=squares), sample(2, cpu_user=2),
        {"t": 1, "pid": 7, "event": "pipeline", "unknown": "NotFoundError"},
    )  # fmt: skip
    assert (found.steps, found.limited_by, found.advice) == (45, None, ())
    assert found.input_wait_error == 0.075
    assert list(found.unknown) == [
        "The input's nodes: tf.data told nothing (NotFoundError).",
        "The wait for input is 20% ± 15%, of 5 steps that were looked at.",
    ]


def test_a_newer_trace_is_read_as_far_as_it_is_understood(tmp_path: Path) -> None:
    found = of(tmp_path, {**HEADER, "version": 2}, sample(0), sample(10, cpu_user=10))
    assert found.cpu_utilisation == 0.25 and "newer version (2)" in found.unknown[0]


def test_of_very_many_lines_the_totals_stay_right(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    with open(file, "w") as out:
        print(json.dumps(HEADER), file=out)
        for number in range(45_000):
            print(json.dumps(sample(number, cpu_user=2 * number, asked_read=number)), file=out)
            print(json.dumps(steps(1000 + number, n=3, calls=3, total=3 * (number + 1))), file=out)
    found = summarise(file)
    assert (found.steps, found.steps_per_s, found.bytes_read) == (135_000, 10.0, 44_999)
    assert (found.cpu_utilisation, found.wall_s) == (0.5, 44_999)


# ---------------------------------------------------------------- whatever a file holds


GOOD = [HEADER, sample(0), first(1000.5), sample(1, cpu_user=1), steps(1001), sample(2, cpu_user=2)]


@given(cut=st.integers(min_value=0, max_value=2000))
def test_a_torn_trace_gives_what_came_before(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = "".join(json.dumps(line) + "\n" for line in GOOD)
    file = tmp_path_factory.mktemp("torn") / "trace.jsonl"
    file.write_text(text[:cut])
    whole = text[:cut].count("\n")
    torn_is_whole = text[:cut].endswith("}")
    file2 = file.with_name("whole.jsonl")
    file2.write_text("".join(json.dumps(line) + "\n" for line in GOOD[: whole + torn_is_whole]))
    assert summarise(file) == summarise(file2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
NODE: dict[str, Any] = {
    "name": "Map", "n": 3, "s": 0.1, "bytes": 12, "buffered": 0, "copies": 1, "inputs": [1]
}  # fmt: skip
MORE: list[dict[str, Any]] = [
    {"event": "pulls", "span": 1, "squares": [1, 1, 1], "total": 3},
    {"event": "pipeline", "nodes": [NODE, NODE], "batches": 3, "iterator": 1, "epoch_batches": 2},
    {"event": "model", "policy": "float32", "gpus": 1, "growth": True, "batch": 3, "epochs": 2},
    {"event": "alarm", "text": "It is swapping.", "kind": "swapping", "disks": {}, "busy": [1]},
]
KEYS = st.sampled_from(sorted({key for line in [*GOOD, *MORE] for key in line}))
EVENTS = st.sampled_from(
    ["header", "sample", "steps", "first_step", "pulls", "end", "pipeline", "model", "alarm"]
)
LINES = st.builds(
    lambda event, more: {**more, "event": event},
    EVENTS,
    st.dictionaries(KEYS, JSON | st.just([NODE]), max_size=12),
)


@given(lines=st.lists(LINES | JSON, max_size=12), garbage=st.text(max_size=20))
def test_nothing_in_a_trace_is_too_much(
    lines: list[Any], garbage: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("any") / "trace.jsonl"
    text = "".join(json.dumps(line) + "\n" for line in lines) + garbage
    file.write_bytes(text.encode("utf-8", "surrogatepass") + b"\xff")
    found = summarise(file)
    for share in (found.input_wait, found.cpu_utilisation, found.gpu_utilisation):
        assert share is None or 0 <= share <= 1
    for value in asdict(found).values():
        assert not isinstance(value, int | float) or (value >= 0 and math.isfinite(value))
    json.dumps(asdict(found), allow_nan=False)
