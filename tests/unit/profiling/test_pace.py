"""The pace of a run, from a trace that is read as it grows."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.progress import Pace
from orchestrator.profiling.pace import PaceMeter, Remaining

T = 1_795_776_000.0


def line(event: str, at: float, **facts: Any) -> bytes:
    return json.dumps({"t": T + at, "event": event, **facts}, separators=(",", ":")).encode() + b"\n"


def header() -> bytes:
    return line("header", 0, version=1, cores=4.0, memory=8 << 30)


def sample(up: float, cpu: float, **facts: Any) -> bytes:
    return line("sample", up, up=up, cpu_user=cpu, cpu_system=0.0, rss=1_000, **facts)


def window(at: float, total: int, n: int, period: float, wait: float = 0.0) -> bytes:
    probed = {"probed": 4, "probed_wall": 4 * period, "wait": 4 * period * wait, "gap_p50": 0.0}
    return line(
        "steps", at, pid=7, source="fit", total=total, n=n, calls=n, period_p50=period, **probed,
        squares=[0.0, 0.0, 0.0],
    )  # fmt: skip


def metered(*lines: bytes, step: int = 100) -> Pace:
    meter, data = PaceMeter(), b"".join(lines)
    for at in range(0, len(data), step):
        meter.add(data[at : at + step])
    return meter.pace()


def test_nothing_is_known_of_a_run_that_has_just_started() -> None:
    assert metered(b"") == Pace()
    assert metered(header()).steps is None


def test_rates_are_those_of_the_last_seconds() -> None:
    """The first minute was slow and alone; since then, steps take 10 ms and wait a quarter of that."""
    slow = [each for up in range(60) for each in (sample(up, up * 1.0), window(up, up + 1, 1, 1.0))]
    fast = [
        each
        for up in range(60, 80)
        for each in (sample(up, 60 + (up - 60) * 3.0, gpus=[{"utilisation": 0.5}]),
                     window(up, 60 + (up - 59) * 100, 100, 0.01, wait=0.25))
    ]  # fmt: skip
    model = line("model", 1, epochs=10, epoch_steps=500)
    pace = metered(header(), model, *slow, *fast)
    assert pace.steps == 2060 and pace.all_steps == 5000
    assert (pace.epoch, pace.epochs) == (5, 10)
    assert pace.steps_per_s == 100.0 and pace.busy == 3.0 and pace.cores == 4.0 and pace.gpu == 0.5
    assert pace.seconds == 79.0 and pace.memory == 1_000


def test_a_second_call_of_fit_has_no_planned_steps() -> None:
    pace = metered(header(), line("model", 1, epochs=2, epoch_steps=10), window(2, 25, 25, 0.1))
    assert pace.steps == 25 and pace.all_steps is None and pace.epoch is None


def test_bytes_that_are_passed_over_spoil_no_line() -> None:
    meter = PaceMeter()
    meter.add(header() + sample(1, 1.0)[:20])
    meter.skip()
    meter.add(b'1,"rss":5}\n' + sample(2, 2.0) + sample(3, 3.0))
    assert meter.pace().busy == 1.0


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = ["t", "up", "cpu_user", "rss", "total", "n", "calls", "period_p50", "probed", "wait", "squares"]
KEYS += ["epochs", "epoch_steps", "gpus", "cores", "source"]


@given(
    st.lists(
        st.binary(max_size=20)
        | st.builds(
            lambda event, facts: json.dumps({"event": event, **facts}, separators=(",", ":")).encode(),
            st.sampled_from(["header", "sample", "steps", "first_step", "pulls", "model", "x"]),
            st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6),
        ),
        max_size=12,
    ),
    st.integers(1, 60),
)
def test_whatever_a_machine_writes_is_a_pace(lines: list[bytes], step: int) -> None:
    pace = metered(*(each + b"\n" for each in lines), step=step)
    for value in asdict(pace).values():
        assert not isinstance(value, float) or math.isfinite(value)


def test_what_is_kept_of_a_long_trace_is_bounded() -> None:
    meter = PaceMeter()
    for up in range(20_000):
        meter.add(sample(up, up * 2.0, filler="x" * 200))
    assert meter._size <= 1 << 19 and meter.pace().busy == 2.0
    meter.add(b"y" * (1 << 20) + b"\n" + sample(20_000, 40_000.0))
    assert meter.pace().seconds == 20_000.0


def test_the_rest_is_estimated_from_what_was_seen() -> None:
    remaining = Remaining()
    remaining.add(0.5, 100.0)
    assert remaining.seconds(101.0) is None
    remaining.add(0.6, 110.0)
    assert round(remaining.seconds(110.0) or 0) == 40
    assert round(remaining.seconds(120.0) or 0) == 30
    remaining.add(0.1, 121.0)  # another training began
    assert remaining.seconds(122.0) is None
