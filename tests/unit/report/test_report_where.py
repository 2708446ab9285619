"""From a trace to the screen after a run, word for word, and to what `run.json` publishes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.api.schemas import schema
from orchestrator.profiling import evidence
from orchestrator.report.where import like_text, where_time_went
from orchestrator.sizing.rightsize import _memory_of, profile_of_run
from tests.conftest import ROOT
from tests.unit.profiling.test_profiling import LINES

GOLDEN = ROOT / "tests/golden/report"
GIB = 1 << 30
HEADER = {"event": "header", "version": 1, "cores": 16.0, "memory": 32 * GIB, "machine": "x86_64", "gpus": []}
C5 = {"provider": "aws", "zone": "us-east-1a", "instance_type": "c5.4xlarge", "price_usd_hour": 0.68}


def sample(up: float, **more: Any) -> dict[str, Any]:
    """One of sixteen cores at work; a tenth of what is read comes from the disk."""
    line = {
        "t": up, "event": "sample", "up": up, "cpu_user": 1.1 * up, "cpu_system": 0.1 * up,
        "waited": 0.01 * up, "asked_read": 5e6 * up, "read": 5e5 * up, "asked_written": 0, "written": 0,
        "read_calls": 10 * up, "major_faults": 0, "received": 0, "sent": 0, "throttled": 0, "steal": 0,
        "swapped_in": 0, "swapped_out": 0, "peak": 3 * GIB, "swap": 0, "available": 20 * GIB,
        "busy": [7.5] * 16, "disks": {}, "gpus": None,
        "own_cpu": 0.001 * up,
    }  # fmt: skip
    return {**line, **more}


def steps(t: float, **more: Any) -> dict[str, Any]:
    """A step takes 20 ms, twelve of which it waits."""
    line = {
        "t": t, "pid": 7, "event": "steps", "source": "fit", "n": 50, "calls": 50, "total": int(50 * t),
        "wall": 1.0, "period_p50": 0.02, "period_p95": 0.03, "gap_p50": 0.0001, "probed": 5,
        "probed_wall": 0.0995, "wait": 0.06, "squares": [0.00073, 0.0012, 0.002],
    }  # fmt: skip
    return {**line, **more}


def pipeline(t: float, batches: int) -> dict[str, Any]:
    def node(name: str, ms: float, count: int, inputs: list[int], **more: Any) -> dict[str, Any]:
        made = {
            "name": name,
            "n": count * batches,
            "s": ms * batches / 1000,
            "bytes": count * batches * 12288,
        }
        return {**made, "buffered": 0, "copies": 1, "inputs": inputs, **more}

    nodes = [
        node("Root", 0.02, 1, [1]), node("Prefetch", 0.1, 1, [2], buffer=2), node("BatchV2", 0.6, 1, [3]),
        node("Map", 19.0, 32, [4]), node("Shuffle", 0.1, 32, [5]), node("TFRecord", 0.2, 32, []),
    ]  # fmt: skip
    return {
        "t": t,
        "pid": 7,
        "event": "pipeline",
        "iterator": 2,
        "batches": batches,
        "epoch_batches": 500,
        "nodes": nodes,
    }


MODEL = {
    "t": 1, "pid": 7, "event": "model", "parameters": 1000, "policy": "float32", "optimizer": "Adam",
    "steps_per_execution": 1, "batch": 32, "epochs": 5, "epoch_steps": 500, "gpus": 0, "growth": None,
}  # fmt: skip
FIRST = {"t": 0.5, "pid": 7, "event": "first_step", "source": "fit", "n": 1, "wall": 0.4}

SLOW_INPUT = [HEADER, sample(0), FIRST, MODEL]
for second in range(1, 31):
    SLOW_INPUT += [sample(second), steps(second + 0.5)]
SLOW_INPUT.append(pipeline(29, 400))

FED = {"probed_wall": 0.1, "wait": 0.0005, "squares": [5e-8, 1e-5, 0.002]}
HEALTHY = [HEADER, sample(0), FIRST, MODEL]
for second in range(1, 31):
    HEALTHY += [sample(second), steps(second + 0.5, **FED)]

SHORT = [
    HEADER,
    sample(0),
    FIRST,
    sample(0.25),
    sample(0.5),
    sample(1.0),
    steps(1.4, n=44, total=45, wait=0.02, squares=[1e-4, 4e-4, 0.002]),
]

STARTING = [HEADER, *(sample(second) for second in range(9)), {**FIRST, "t": 7.9}, MODEL]
STARTING += [steps(8.9, n=250, calls=250, total=251, period_p50=0.004, probed_wall=0.02, wait=0.0034,
                   squares=[2.4e-6, 1.4e-5, 8e-5]), sample(9)]  # fmt: skip

SWAPPING = [HEADER, sample(0, available=0), FIRST]
for second in range(1, 31):
    swapped = {"swapped_in": second * (20 << 20), "swap": 2 * GIB, "available": GIB, "peak": 31 * GIB}
    SWAPPING += [sample(second, **swapped), steps(second + 0.5, **FED)]
SWAPPING.append(
    {"t": 30, "event": "alarm", "kind": "swapping", "text": "It is swapping: 20 MiB/s go to the disk."}
)

NO_STEPS = [HEADER, *(sample(second, cpu_user=15.5 * second) for second in range(20))]

CROWDED = [
    HEADER,
    *(
        sample(second, cpu_user=0.2 * second, cpu_system=0, waited=0.8 * second, busy=[99] * 16)
        for second in range(20)
    ),
]
"""A loop of NumPy, beside others that kept all sixteen cores."""

BRIEF = CROWDED[:3]

RUNS = {
    "slow-input": SLOW_INPUT,
    "healthy": HEALTHY,
    "short": SHORT,
    "starting": STARTING,
    "swapping": SWAPPING,
    "no-steps": NO_STEPS,
    "other-programs": CROWDED,
    "brief": BRIEF,
}


def profile(folder: Path, lines: list[dict[str, Any]], machine: Mapping[str, Any] | None = C5) -> Any:
    (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return profile_of_run(folder, machine)


def offered(**more: Any) -> dict[str, Any]:
    offer = {"cloud": "aws", "instance_type": "c6a.2xlarge", "region": "us-east-1", "price_usd_hour": 0.306}
    return {**offer, "time_at_best": 1.0, "time_at_worst": 1.09, "usd_epoch": 0.0009265, **more}


@pytest.mark.parametrize("name", sorted(RUNS))
def test_screens(name: str, tmp_path: Path) -> None:
    """To accept a new screen: write it into tests/golden/report and read it there as a user would."""
    found = profile(tmp_path, RUNS[name])
    if found["right_size"]:  # prices change: those of the screens do not
        found["right_size"].update(change=offered(), better=True)
    assert where_time_went(found) + "\n" == (GOLDEN / f"where-{name}.txt").read_text()


@pytest.mark.parametrize("name", sorted(RUNS))
@pytest.mark.parametrize("machine", [None, C5])
def test_what_is_published_follows_its_schema(name: str, machine: Any, tmp_path: Path) -> None:
    published = json.loads(json.dumps(profile(tmp_path, RUNS[name], machine), allow_nan=False))
    its = schema("run")["properties"]["profile"]
    jsonschema.Draft202012Validator(its).validate(published)
    assert set(published) == set(its["properties"])


def test_no_machine_can_be_named_is_shown_for_costly_machines_and_not_for_short_runs(tmp_path: Path) -> None:
    def said(lines: list[dict[str, Any]], machine: Mapping[str, Any] | None) -> bool:
        return any("Which machine" in text for text in profile(tmp_path, lines, machine)["unknown"])

    no_peak = [{key: value for key, value in line.items() if key != "peak"} for line in HEALTHY]
    assert said(no_peak, C5)
    assert not said(no_peak, None) and not said(no_peak, {**C5, "price_usd_hour": 0.0})
    assert not said(SHORT, C5)


def test_memory_that_is_free_is_the_machines_and_not_the_computers(tmp_path: Path) -> None:
    """A machine of 4 GiB on a computer on which 20 GiB are free; a run that holds 1 GiB of it."""
    header = {**HEADER, "memory": 24 * GIB}
    lines = [header, *({**line, "available": 20 * GIB, "rss": GIB} for line in SLOW_INPUT[1:])]
    limited = [{**header, "memory": 4 * GIB, "memory_is_a_limit": True}, *lines[1:]]
    small = {**C5, "detail": {"memory": 4 * GIB}}
    for told, machine, free in ((lines, None, 20), (lines, small, 3), (limited, None, 3)):
        (tmp_path / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
        known = _memory_of(machine)
        assert evidence(tmp_path / "trace.jsonl", known).usage.available == free * GIB
    assert profile(tmp_path, lines, small)["memory"] == 4 * GIB


def test_without_a_trace_there_is_no_profile(tmp_path: Path) -> None:
    assert profile_of_run(tmp_path) is None


SIZE: dict[str, Any] = {
    "keep": {"instance_type": "c5.4xlarge", "price_usd_hour": 0.68, "usd_epoch": 0.5, "usd_1000_steps": 0.1},
    "change": offered(usd_epoch=0.48), "better": False, "faster": None,
    "reasons": ["2 cores", "1 GiB of memory"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "Keep c5.4xlarge ($0.68/h), $0.50 an epoch: the cheapest that keeps up"),
        ({"better": True}, "$0.48 an epoch instead of $0.50 an epoch on c5.4xlarge"),
        ({"change": None}, "No machine in the catalog would have run it as fast."),
        (
            {"keep": {**SIZE["keep"], "price_usd_hour": 0.0}},
            "On a cloud, the cheapest that keeps up is aws",
        ),
        ({"faster": offered(usd_epoch=None, usd_1000_steps=0.2)}, "With enough cores: aws c6a.2xlarge"),
    ],
)
def test_the_machine(more: dict[str, Any], says: str) -> None:
    text = " ".join(where_time_went({"right_size": {**SIZE, **more}}).split())
    assert says in text and "needs 2 cores and 1 GiB of memory." in text


def test_a_price_is_told_where_advice_costs() -> None:
    advice = {"change": "stage it", "because": "It is far.", "gain": None, "formula": "not predicted",
              "parity": "Same.", "trial": None, "price": "$1/h"}  # fmt: skip
    text = where_time_went({"advice": [advice, {**advice, "change": "or else", "gain": 1.5}]})
    assert "Price: $1/h." in text and "Gain: not predicted." in text
    assert "or else (predicted: 1.50× as fast)." in text and "--try" not in text


def test_a_plan_like_a_run_tells_how_to_have_it() -> None:
    assert like_text("p.yaml", None, (), ()) == ""
    text = like_text(
        "p.yaml", "r1", ("resources.cpus=2+", "resources.memory=1536 MiB+"), ("2 cores", "1.5 GiB")
    )
    assert text == (
        "\nr1 needed 2 cores and 1.5 GiB.\n"
        "Next: orch up p.yaml --set resources.cpus=2+ --set 'resources.memory=1536 MiB+'"
    )


@settings(max_examples=25)
@given(lines=st.lists(LINES, max_size=14))
def test_whatever_a_trace_holds_there_is_a_screen(lines: list[Any], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("any")
    told = [sample(0), *lines, sample(30), steps(1), steps(20, total=900), {**pipeline(9, 300), "pid": 7}]
    found = profile(folder, told)
    json.dumps(found, allow_nan=False)
    assert "limited by" in where_time_went(found)


def test_a_change_of_the_steps_is_said_to_be_one_where_start_up_was_most(tmp_path: Path) -> None:
    found = {**profile(tmp_path, RUNS["slow-input"]), "startup_s": 50.0, "wall_s": 60.0}
    of_steps = "It changes the steps alone; most of this run was before them."
    assert of_steps in where_time_went({**found, "mostly_startup": True})
    assert of_steps not in where_time_went({**found, "mostly_startup": False})
