"""What each second of a run went into, by its trace."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.profiling.timeline import MOST, Timeline, timeline_of
from orchestrator.profiling.trace import parse
from tests.unit.report.page.runs import trace_lines


def made(lines: list[dict[str, Any]]) -> Timeline:
    found = timeline_of(parse(json.dumps(line).encode() for line in lines))
    assert found is not None
    return found


def at(line: Timeline, second: float) -> Any:
    return next(span.shares for span in line.spans if span.begin <= second < span.end)


def test_every_moment_adds_up_to_one_and_the_spans_cover_the_run() -> None:
    line = made(trace_lines())
    for span in line.spans:
        shares = span.shares
        assert shares.input + shares.compute + shares.host + shares.idle == pytest.approx(1.0)
    assert line.spans[0].begin == 0.0
    assert line.spans[-1].end == line.seconds == 12.0
    assert all(a.end == b.begin for a, b in zip(line.spans, line.spans[1:], strict=False))


def test_start_up_is_host_training_is_compute_and_input_and_the_rest_is_idle() -> None:
    line = made(trace_lines(waited=0.3))
    assert at(line, 2.0).host == pytest.approx(1.0)
    assert at(line, 7.0).input == pytest.approx(0.3)
    assert at(line, 7.0).compute == pytest.approx(0.6)
    assert at(line, 11.5).idle == pytest.approx(1.0)
    assert (line.first, line.last) == (4.0, 10.5)
    assert line.input_known


def test_more_waiting_for_input_is_more_input() -> None:
    shares = [made(trace_lines(waited=waited)).totals.input for waited in (0.0, 0.2, 0.6)]
    assert shares == sorted(shares)
    assert shares[0] == 0.0


def test_without_steps_the_time_is_busy_or_idle() -> None:
    line = made([each for each in trace_lines() if each["event"] in ("header", "sample")])
    assert (line.totals.input, line.totals.compute) == (0.0, 0.0)
    assert line.totals.host == pytest.approx(10 / 12)
    assert line.first is None


def test_a_gpu_at_work_is_compute_where_no_steps_are_known() -> None:
    line = made([each for each in trace_lines(gpus=True) if each["event"] in ("header", "sample")])
    assert at(line, 8.0).compute == pytest.approx(0.5)
    assert set(line.series) >= {"cpu", "gpu", "memory", "gpu memory", "disk read", "network"}
    assert line.series["gpu memory"].limit == 1 << 34


def test_want_of_a_core_is_no_idleness() -> None:
    lines = trace_lines()
    for line in lines:
        if line["event"] == "sample":
            line["cpu_user"] = 0.1 * line["up"]
            line["waited"] = 0.9 * line["up"]
    assert at(made(lines), 2.0).host == pytest.approx(1.0)


def test_a_long_run_has_few_points() -> None:
    lines = [
        {**line, "t": line["t"] + 12 * n, "up": line["up"] + 12 * n}
        for n in range(300)
        for line in trace_lines()[1:13]
    ]
    line = made(lines)
    assert len(line.spans) <= MOST + 1
    assert all(len(one.times) <= MOST for one in line.series.values())


def test_nothing_is_known_of_an_empty_trace() -> None:
    assert timeline_of(parse([])) is None
    assert (
        timeline_of(parse([b'{"event":"sample","t":1,"up":0}', b'{"event":"sample","t":1,"up":0}'])) is None
    )
