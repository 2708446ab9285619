"""Records that a run left, read here: any bytes in them give facts or none, never a failure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator import parity
from orchestrator.model import Exit, ExitReason, RunRecord
from orchestrator.parity.recording import read
from orchestrator.profiling.trace import parse
from orchestrator.runs import collect
from orchestrator.sizing import rightsize
from tests.hostile.machines.lies import DEEP

ODD: Sequence[Any] = (
    None, True, -1, 0, 1e308, -1e308, 10**30, 0.5, "", "x" * 300, "\x1b[2J", "\ud800", [], {}, [[]], [None],
    {"a": {"a": {}}}, [1, "a"], float("nan"), float("inf"),
)  # fmt: skip

DIGEST = "ab" * 32
TENSOR = {"stage": "batch", "name": "x", "dtype": "float32", "shape": [2], "sha256": DIGEST, "l2": 1.0}
RECORDS = {"count": 2, "ordered": DIGEST, "multiset": "ff", "rows": ["ab"]}
STEPS: Sequence[dict[str, Any]] = (
    {"event": "step", "step": 1, "tensors": [TENSOR], "records": {"": RECORDS}, "unread": ["u"]},
    {"event": "metrics", "step": 1, "tensors": [TENSOR]},
    {"event": "light-names", "names": [["batch", "x"]]},
    {"event": "light", "step": 2, "sums": ["12"], "norms": [1.0]},
)
STATUS = {"requested": 3, "not_compared": [{"what": "w", "why": "y"}], "imposed": {}}


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, each in items for path in places(each, (*at, key)))]


@st.composite
def spoilt(draw: st.DrawFn, lines: Sequence[dict[str, Any]]) -> bytes:
    """The lines, one thing in them replaced or gone, garbage among them."""
    found = json.loads(json.dumps(lines))
    place = draw(st.sampled_from([path for path in places(found) if len(path) > 1]))
    at = found
    for key in place[:-1]:
        at = at[key]
    if isinstance(at, dict) and draw(st.booleans()):
        del at[place[-1]]
    else:
        at[place[-1]] = draw(st.sampled_from(ODD))
    text = [json.dumps({"v": 1, **line}).encode() if isinstance(line, dict) else b"[]" for line in found]
    garbage = draw(st.sampled_from([None, b"\xff\xfe", b"null", b"[1]", DEEP[:3000], b'{"v": 1']))
    if garbage is not None:
        text.insert(draw(st.integers(0, len(text))), garbage)
    return b"\n".join(text) + b"\n"


def recorded(top: Path, lines: bytes, status: bytes) -> Path:
    folder = top / "observe"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "steps.jsonl").write_bytes(lines)
    (folder / "status.json").write_bytes(status)
    return top


def right(lines: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps({"v": 1, **line}).encode() + b"\n" for line in lines)


FUZZ = settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(lines=spoilt(STEPS), status=spoilt((STATUS,)))
def test_a_spoilt_recording_is_read_or_refused_and_can_be_judged(
    tmp_path: Path, lines: bytes, status: bytes
) -> None:
    good = recorded(tmp_path / "good", right(STEPS), json.dumps(STATUS).encode())
    bad = recorded(tmp_path / "bad", lines, status.strip())
    found = read(bad)
    assert found.steps or found.why
    assert parity.judge(read(good), found).verdict
    inside = [each.file or each.sample for step in found.steps for each in step.tensors]
    assert all(path is None or path.parent == bad / "observe" / "tensors" for path in inside)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../../x", "tensors/../../x.npy", "tensors/a\0.npy", "x" * 9999]
)
def test_a_recording_names_no_file_outside_of_it(tmp_path: Path, name: str) -> None:
    line = {**STEPS[0], "tensors": [{**TENSOR, "file": name}]}
    found = read(recorded(tmp_path, right([line]), b"{}"))
    assert not found.steps and "line 1" in found.why


NOUGHT = dict.fromkeys(
    ("cpu_user", "cpu_system", "read", "written", "asked_read", "asked_written", "waited",
     "major_faults", "received", "sent", "throttled", "own_cpu", "peak"), 0
)  # fmt: skip
NODE = {"name": "Map", "n": 3, "s": 0.1, "bytes": 12, "buffered": 0, "copies": 1, "inputs": [1]}
GPU = {"index": 0, "name": "NVIDIA T4", "memory": 1 << 34, "used": 1 << 30, "busy": 0.5}
STEP = {"pid": 7, "source": "fit", "n": 10, "calls": 10, "gap_p50": 0.0, "period_p50": 0.1, "probed": 9}
TRACE: Sequence[dict[str, Any]] = (
    {"event": "header", "version": 1, "cores": 4.0, "memory": 1 << 34},
    {"event": "sample", "t": 1000.0, "up": 1.0, **NOUGHT, "gpus": [GPU]},
    {"event": "first_step", "t": 1000.5, "pid": 7, "source": "fit", "n": 1, "wall": 3.0},
    *(
        {**STEP, "event": "steps", "t": 1000.0 + n, "n": n, "probed_wall": n / 10, "wait": n / 50}
        for n in (9, 99)
    ),
    {
        "event": "sample",
        "t": 1100.0,
        "up": 100.0,
        **NOUGHT,
        "cpu_user": 300.0,
        "peak": 1 << 31,
        "gpus": [GPU],
    },
    {"event": "pulls", "pid": 7, "t": 1100.0, "span": 1, "squares": [1, 1, 1], "total": 3},
    {"event": "pipeline", "pid": 7, "nodes": [NODE, NODE], "batches": 3, "iterator": 1, "epoch_batches": 2},
    {"event": "model", "pid": 7, "policy": "float32", "gpus": 1, "growth": True, "batch": 3, "epochs": 2},
    {"event": "alarm", "t": 1050.0, "text": "It is swapping.", "kind": "swapping", "disks": {}, "busy": [1]},
    {"event": "end", "up": 101.0},
)
MACHINE = {
    "provider": "gcp",
    "zone": "us-central1-a",
    "instance_type": "n2-standard-4",
    "price_usd_hour": 0.2,
}


@FUZZ
@given(lines=spoilt(TRACE))
def test_a_spoilt_trace_gives_a_profile(tmp_path: Path, lines: bytes) -> None:
    (tmp_path / "trace.jsonl").write_bytes(lines)
    found = rightsize.profile_of_run(tmp_path, MACHINE)
    assert found is not None and json.dumps(found)


def test_garbage_in_a_trace_is_counted() -> None:
    good = right(TRACE).splitlines(keepends=True)
    assert parse(good).skipped == 0
    assert parse([*good, b'{"event": "sam']).skipped == 1
    assert parse([b"\xff\xfe\n", b"x\n", *good]).skipped == 2


def test_a_line_without_end_is_no_memory(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_bytes(right(TRACE) + b"x" * (20 << 20))
    found = rightsize.profile_of_run(tmp_path)
    assert found is not None and "no records" in " ".join(found["unknown"])


def numbers(folder: Path, size: int) -> dict[str, Any]:
    """The metrics of a run that left one file of so many bytes, as its list says."""
    ended = collect.exit_json(Exit(0, None, ExitReason.COMPLETED))
    artifact = {"path": "outputs/metrics.json", "sha256": DIGEST, "bytes": size}
    return collect.metrics(RunRecord("r", folder, ended, artifacts=(artifact,)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"loss": 0.5, "name": "x", "deep": {"a": 1}, "steps": 3}', {"loss": 0.5, "steps": 3}),
        (b'{"huge": 1' + b"0" * 400 + b', "loss": 1}', {"loss": 1}),
        (b'{"' + b"k" * 1000 + b'": 1, "loss": 1}', {"loss": 1}),
        (DEEP, {}),
        (b'{"a":' * 5000, {}),
        (b"\xff\xfe", {}),
        (b"[1, 2]", {}),
        (b"", {}),
    ],
    ids=lambda value: str(value)[:30],
)
def test_metrics_of_any_content(tmp_path: Path, text: bytes, expected: dict[str, Any]) -> None:
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "metrics.json").write_bytes(text)
    found = numbers(tmp_path, len(text))
    assert found == expected and json.dumps(found)


def test_a_gigantic_metrics_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "metrics.json").write_bytes(b'{"loss": 1}' + b" " * (2 << 20))
    assert numbers(tmp_path, 2 << 20) == {}
    many = json.dumps({f"m{number}": number for number in range(20_000)}).encode()
    (tmp_path / "outputs" / "metrics.json").write_bytes(many)
    assert len(numbers(tmp_path, len(many))) == 1000


def test_a_training_that_went_astray_keeps_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "metrics.json").write_text('{"loss": NaN}')
    assert math.isnan(numbers(tmp_path, 13)["loss"])
