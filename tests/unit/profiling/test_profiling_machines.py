"""Which machine would have been right, by the trace and the catalog."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator import catalog
from orchestrator.errors import UsageError
from orchestrator.model import Offer
from orchestrator.profiling import Evidence, machines
from orchestrator.profiling.accelerators import sheet_of, slower
from orchestrator.profiling.devices import Gpu
from orchestrator.profiling.evidence import Training
from orchestrator.profiling.steps import Steps
from orchestrator.profiling.usage import Usage
from orchestrator.sizing import rightsize
from tests.conftest import ROOT

GIB = 1 << 30
RUN = Evidence(
    Steps(count=1000, per_second=10.0, input_wait=0.01, began=0.0, ended=100.0),
    Usage(cores=16.0, busy=2.0, cpu=0.125, machine_busy=2.0, waiting=0.0, peak_memory=5 * GIB,
          memory_limit=64 * GIB, swapping=0.0, faults=0.0),
    training=Training(epoch_steps=3600, gpus=0),
    header={"machine": "x86_64"},
)  # fmt: skip
C5 = {"provider": "aws", "zone": "us-east-1a", "instance_type": "c5.4xlarge", "price_usd_hour": 0.68}


def offer(name: str, cpus: int, price: float, **more: Any) -> Offer:
    return Offer("aws", name, "us-east-1", "", cpus, 64 * GIB, "x86_64", price, **more)


def using(**usage: Any) -> Evidence:
    return replace(RUN, usage=replace(RUN.usage, **usage))


def test_what_a_run_needs() -> None:
    """Two of sixteen cores on average; at worst it takes 1 − 2/16 + 2/9 times as long on nine."""
    needs = machines.wanted(RUN)
    assert needs and (needs.cpus, needs.memory, needs.arch, needs.gpus) == (9, int(6.5 * GIB), "x86_64", 0)
    assert needs.reasons == ("9 cores (it kept 2.0 of 16 busy)", "6.5 GiB of memory (its peak was 5.00 GiB)")
    assert machines.wanted(RUN, within=1.0) == replace(
        needs, cpus=2, reasons=("2 cores (it kept 2.0 of 16 busy)", needs.reasons[1])
    )


@pytest.mark.parametrize(
    ("evidence", "why", "remedy"),
    [
        (replace(RUN, steps=replace(RUN.steps, count=45, ended=1.0)), "too short", "200 steps or 10 s"),
        (using(busy=None), "not measured", "orch size"),
        (using(machine_busy=15.0, waiting=9.0), "others on the machine kept 13.0", "while nothing else runs"),
    ],
)
def test_what_cannot_be_told_is_not_and_has_its_own_remedy(evidence: Evidence, why: str, remedy: str) -> None:
    assert machines.wanted(evidence) is None
    assert why in (machines.untold(evidence) or "")
    assert remedy in (machines.remedy(evidence) or "")
    assert machines.remedy(RUN) is None


def test_others_on_the_machine_hide_cores_alone() -> None:
    needs = machines.wanted_besides_cores(using(machine_busy=15.0, waiting=9.0))
    assert needs and needs.memory == int(6.5 * GIB) and "cannot be told" in needs.reasons[0]
    assert machines.wanted_besides_cores(RUN) is None
    assert machines.wanted_besides_cores(using(machine_busy=15.0, waiting=9.0, peak_memory=None)) is None


def test_a_run_whose_memory_was_short_needs_more_than_it_had() -> None:
    needs = machines.wanted(using(swapping=5e7, swap=20 * GIB, peak_memory=63 * GIB))
    assert needs and needs.memory == 104 * GIB


@pytest.mark.parametrize(
    ("cpus", "best", "worst"),
    [(16, 1.0, 1.0), (8, 1.0, 1.125), (1, 2.0, 2.875), (32, 0.9375, 1.0)],
)
def test_times_on_other_cores(cpus: int, best: float, worst: float) -> None:
    assert machines.times_on(RUN, offer("c", cpus, 1.0)) == (best, worst)


A10G = Gpu("NVIDIA A10G", 0.8, 20 * GIB, 24 * GIB)


def test_times_on_other_gpus_by_their_data_sheets() -> None:
    """Eight tenths of the time by the GPU's ratio, two by the cores'."""
    run = using(gpus=(A10G,))
    times = machines.times_on(run, offer("g6", 16, 1.0, accelerator="L4", accelerator_count=1))
    assert times and times.best == pytest.approx(0.8 * 31.2 / 30.3 + 0.2)
    assert times.worst == pytest.approx(0.8 * 600 / 300 + 0.2)
    assert machines.times_on(run, offer("c5", 16, 1.0)) is None
    assert machines.times_on(run, offer("q", 16, 1.0, accelerator="QUALCOMM-AI100")) is None


@pytest.mark.parametrize(
    ("growth", "memory"),
    [(True, int(20 * GIB * 1.1)), (False, int(24 * GIB * 0.97)), (None, int(24 * GIB * 0.97))],
)
def test_gpu_memory_is_known_only_where_it_was_taken_as_needed(growth: bool | None, memory: int) -> None:
    run = replace(using(gpus=(A10G,)), training=Training(gpus=1, growth=growth))
    needs = machines.wanted(run)
    assert needs and (needs.gpus, needs.gpu_memory) == (1, memory)


def test_a_gpu_that_did_nothing_is_not_needed() -> None:
    needs = machines.wanted(using(gpus=(replace(A10G, utilisation=0.0),)))
    assert needs and needs.gpus == 0 and needs.reasons[-1].startswith("no GPU")


@pytest.mark.parametrize(
    ("driver", "sold"),
    [("Tesla T4", "T4"), ("NVIDIA A100-SXM4-80GB", "A100-80GB"), ("NVIDIA A100-SXM4-40GB", "A100"),
     ("NVIDIA L4", "L4"), ("NVIDIA L40S", "L40S"), ("NVIDIA H100 80GB HBM3", "H100")],
)  # fmt: skip
def test_a_gpu_has_one_sheet_whoever_names_it(driver: str, sold: str) -> None:
    assert sheet_of(driver) == sheet_of(sold) is not None
    assert slower(driver, sold) == (1.0, 1.0)


def test_every_gpu_of_nvidia_in_the_catalog_is_known_or_left_out_on_purpose() -> None:
    sold = {kind.accelerator for cloud in catalog.clouds() for kind, _ in catalog.load(cloud).sold
            if kind.vendor == "nvidia" and kind.accelerator}  # fmt: skip
    unknown = {name for name in sold if sheet_of(name) is None}
    assert unknown <= {"B200", "B300", "GB200", "GB300", "RTX-PRO-4500", "RTX-PRO-6000"}


def test_the_cheapest_that_keeps_up_even_at_worst() -> None:
    offers = [offer("small", 4, 0.1), offer("right", 12, 0.4), offer("large", 32, 1.0),
              offer("t3a.huge", 64, 0.01), offer("secret", 64, float("nan"))]  # fmt: skip
    found = machines.right(RUN, offers)
    assert found and found[0].instance_type == "right"


# ---------------------------------------------------------------- with prices


def test_keeping_and_changing_are_priced() -> None:
    size = rightsize.right_size(RUN, C5)
    assert size
    keep, change = size["keep"], size["change"]
    assert (keep["usd_epoch"], keep["usd_1000_steps"]) == (
        pytest.approx(0.068),
        pytest.approx(0.018889, 1e-3),
    )
    assert change["cloud"] == "aws" and change["region"] == "us-east-1" and change["cpus"] >= 9
    assert change["usd_epoch"] == pytest.approx(
        360 * change["time_at_worst"] * change["price_usd_hour"] / 3600
    )
    assert size["better"] == (change["price_usd_hour"] * change["time_at_worst"] < 0.9 * 0.68)


def test_what_costs_nothing_is_kept() -> None:
    size = rightsize.right_size(RUN, None)
    assert size and not size["better"] and size["change"] and size["keep"]["price_usd_hour"] == 0.0


def test_enough_cores_are_priced_where_they_were_too_few() -> None:
    crowded = replace(
        using(cores=4.0, busy=4.0, cpu=1.0, machine_busy=4.0),
        steps=replace(RUN.steps, input_wait=0.5, wait_error=0.01),
    )
    size = rightsize.right_size(crowded, C5)
    assert size and size["faster"]["cpus"] >= 8 and size["faster"]["time_at_worst"] == 0.5


@pytest.mark.parametrize(
    ("cloud", "zone", "region"),
    [("aws", "us-east-1a", "us-east-1"), ("gcp", "europe-west4-b", "europe-west4"), ("local", "local", None),
     ("aws", "us-gov-west-1b", "us-gov-west-1"),
     ("gcp", "northamerica-northeast1-c", "northamerica-northeast1")],
)  # fmt: skip
def test_it_asks_where_the_run_was(cloud: str, zone: str, region: str | None) -> None:
    needs = machines.wanted(RUN)
    assert needs
    need = rightsize._need(needs, {"provider": cloud, "zone": zone})
    assert (need.cloud, need.region) == (cloud if region else "any", region)


@pytest.fixture
def pulled(tmp_path: Path) -> Path:
    """A folder with one run that kept one and a half of eight cores busy for a minute."""
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    lines: list[dict[str, Any]] = [
        {"event": "header", "version": 1, "cores": 8.0, "memory": 8 * GIB, "machine": "x86_64"},
        {"event": "sample", "up": 0, "t": 0, "cpu_user": 0, "cpu_system": 0, "peak": 0},
        {"event": "sample", "up": 60, "t": 60, "cpu_user": 90, "cpu_system": 0, "peak": 3 * GIB},
    ]
    (folder / "trace.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def test_like_a_run(pulled: Path) -> None:
    overrides, reasons = rightsize.similar_types("r", pulled)
    assert overrides == ("resources.cpus=6+", "resources.memory=4096 MiB+")
    assert reasons[0] == "6 cores (it kept 1.5 of 8 busy)"
    (pulled / "runs/r/trace.jsonl").write_text('{"event": "header", "cores": 8.0}')
    with pytest.raises(UsageError, match="cannot be determined"):
        rightsize.similar_types("r", pulled)
    with pytest.raises(UsageError, match="no trace of a run other"):
        rightsize.similar_types("other", pulled)


def test_like_a_run_beside_others_leaves_the_cores_to_the_profile(pulled: Path) -> None:
    trace = pulled / "runs/r/trace.jsonl"
    first, *samples = [json.loads(line) for line in trace.read_text().splitlines()]
    crowd = [{**line, "waited": 8 * line["up"], "busy": [100] * 7 + [0]} for line in samples]
    trace.write_text("\n".join(map(json.dumps, (first, *crowd))))
    overrides, reasons = rightsize.similar_types("r", pulled)
    assert overrides == ("resources.memory=4096 MiB+",)
    assert "others on the machine kept 5.5 of its cores busy; the profile's number stands" in reasons[0]


def test_like_a_run_whose_gpu_did_nothing(pulled: Path) -> None:
    trace = pulled / "runs/r/trace.jsonl"
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    gpu = {"utilisation": 0.0, "memory": 0, "memory_total": 15 * GIB}
    trace.write_text("\n".join(json.dumps({**line, "gpus": [gpu]}) for line in lines))
    overrides, reasons = rightsize.similar_types("r", pulled)
    assert overrides[-1] == "resources.accelerator=null" and reasons[-1].startswith("no GPU")


def test_a_plan_for_what_a_run_needed(pulled: Path) -> None:
    profile = str(ROOT / "profiles/aws-t4.yaml")
    command = [sys.executable, "-m", "orchestrator", "plan", profile, "--like", "r", "--json"]
    done = subprocess.run(command, cwd=pulled, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    planned = json.loads(done.stdout)
    assert planned["like"]["run"] == "r" and "resources.cpus=6+" in planned["like"]["overrides"]
    assert planned["offers"] and all(offer["cpus"] >= 6 for offer in planned["offers"])
