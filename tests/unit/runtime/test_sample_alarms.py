"""What is said while it happens: one sentence for each shortage, once, and none for a moment's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.runtime.sampler.alarms import Alarms

GIB = 1 << 30
HEADER: dict[str, Any] = {
    "cores": 4.0,
    "memory": 16 * GIB,
    "memory_is_a_limit": False,
    "gpus": ["Tesla T4"],
    "disks": {"sda": {"limits": {"bytes_s": 125 << 20, "ops_s": 3000, "basis": "gp3 at its baseline"}}},
}


def sample(up: float, **values: Any) -> dict[str, Any]:
    line: dict[str, Any] = {
        "up": up, "cpu_user": 0.5 * up, "cpu_system": 0.0, "swapped_in": 0, "swapped_out": 0, "swap": 0,
        "steal": 0.0, "throttled": 0.0, "available": 8 * GIB, "group_held": None, "gpus": None, "disks": {},
    }  # fmt: skip
    return {**line, **values}


def gpu(**values: Any) -> dict[str, Any]:
    return {"utilisation": 0.9, "memory": GIB, "memory_total": 16 * GIB, "throttled": [], **values}


def said(*lines: dict[str, Any], header: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    alarms = Alarms(HEADER if header is None else header)
    return [alarm for line in lines for alarm in alarms.see(line)]


def through(of: Callable[[int], dict[str, Any]], seconds: int = 130) -> list[dict[str, Any]]:
    return [sample(up, **of(up)) for up in range(0, seconds, 5)]


SHORTAGES: dict[str, tuple[Callable[[int], dict[str, Any]], str]] = {
    "swapping": (
        lambda up: {"swapped_in": up * (5 << 20), "swap": 2 * GIB},
        "5 MiB/s go to and from the disk, 2.0 GiB of the job",
    ),
    "memory": (lambda _: {"available": GIB // 2}, "97% of 16.0 GiB"),
    "steal": (lambda up: {"steal": 0.8 * up}, "take 20% of its cores"),
    "throttled": (lambda up: {"throttled": 2.0 * up}, "for 50% of the time"),
    "gpu": (
        lambda _: {"gpus": [gpu(utilisation=0.1)]},
        "The GPU Tesla T4 waits: it is busy for 10% of the time, while 0.5 of 4 cores work",
    ),
    "gpu held down": (lambda _: {"gpus": [gpu(throttled=["power brake"])]}, "held down: power brake"),
    "disk": (
        lambda up: {"disks": {"sda": [up, up * (120 << 20), 0, 0, 0, 0, 0]}},
        "The disk sda gives what it can: 120 MiB/s (gp3 at its baseline)",
    ),
}


@pytest.mark.parametrize("kind", SHORTAGES)
def test_a_shortage_that_lasts_is_said_once(kind: str) -> None:
    of, words = SHORTAGES[kind]
    ((found, text),) = said(*through(of))
    assert found == kind and words in text and text.endswith(".")


@pytest.mark.parametrize("kind", [kind for kind in SHORTAGES if kind != "memory"])
def test_a_moment_accuses_nobody(kind: str) -> None:
    of, _ = SHORTAGES[kind]
    first, last = sample(0), sample(20, **of(20))
    assert said(first, sample(10, **of(10)), last) == []


def test_a_healthy_run_is_left_alone() -> None:
    busy = {"gpus": [gpu()], "disks": {"sda": [10, 1 << 20, 0, 0, 0, 0, 0]}}
    assert said(*through(lambda _: busy, 600)) == []


@pytest.mark.parametrize(
    "other",
    [
        {"swapped_in": 1 << 40},  # somebody else's: nothing of the job is swapped out
        {"gpus": [gpu(utilisation=0.0, memory=1 << 20)]},  # the job does not use it
        {"gpus": [gpu(throttled=["power cap"], utilisation=0.9)]},  # a setting, not a fault
        {"disks": {"sdb": [0, 1 << 50, 0, 0, 0, 0, 0]}},  # whose limits nobody knows
        {"steal": None, "throttled": None, "available": None, "swapped_in": None},
    ],
)
def test_what_is_no_shortage_of_this_job(other: dict[str, Any]) -> None:
    assert said(*through(lambda up: other if up > 5 else {})) == []


def test_in_a_control_group_its_own_memory_counts() -> None:
    limited = {**HEADER, "memory": 4 * GIB, "memory_is_a_limit": True}
    held = through(lambda _: {"group_held": int(3.9 * GIB), "available": 100 * GIB})
    ((kind, text),) = said(*held, header=limited)
    assert kind == "memory" and "97% of 4.0 GiB" in text
    assert said(*through(lambda _: {"group_held": GIB, "available": 0}), header=limited) == []


def test_operations_have_a_cap_too() -> None:
    ((_, text),) = said(*through(lambda up: {"disks": {"sda": [2900 * up, 0, 0, 0, 0, 0, 0]}}))
    assert "2900 operations a second" in text


def test_a_gpu_that_waits_while_all_cores_work_is_told_why() -> None:
    starving = through(lambda up: {"cpu_user": 3.9 * up, "gpus": [gpu(utilisation=0.2)]})
    assert any("keeps all of its 4 cores busy" in text for _, text in said(*starving))


def test_several_shortages_are_said_each() -> None:
    both = through(lambda up: {"steal": 0.8 * up, "available": 0})
    assert sorted(kind for kind, _ in said(*both)) == ["memory", "steal"]
