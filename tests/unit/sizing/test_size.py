"""From what a scratch run wrote to the least of each resource, and into a profile's text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.profile import load
from orchestrator.profile.edit import Keys, NotEditable, edited
from orchestrator.profile.tree import Refused
from orchestrator.reads.undeclared import Undeclared
from orchestrator.report.size import size_text
from orchestrator.runtime.sizing.course import Course, Options, describe_error, planned
from orchestrator.sizing import profile_change
from orchestrator.sizing import size as sizing
from orchestrator.sizing.minimums import GIB, Files, Minimum, minimums
from orchestrator.sizing.model import model, read

MIB = 1 << 20


def step(peak: int, rss: int, seconds: float = 0.1, cpu: float = 0.4) -> dict[str, Any]:
    return {"peak": peak, "before": 0, "rss": rss, "seconds": seconds, "cpu": cpu}


def result(device: str = "CPU", **more: Any) -> dict[str, Any]:
    """Of a training that keeps 300 MiB, whose steps take 100 MiB and 10 MiB for each example."""
    sizes = []
    for batch in (16, 32, 64):
        each = step((100 + 10 * batch) * MIB, (900 + 10 * batch) * MIB, 0.01 * batch, 0.02 * batch)
        sizes.append({"batch": batch, "first": each, "steps": [each] * 4})
    return {
        "v": 1,
        "end": "done",
        "kind": "fit",
        "device": device,
        "xla": False,
        "policy": "float32",
        "optimizer": "Adam",
        "own_batch": 64,
        "batch_bytes": 64 * MIB,
        "base_rss": 600 * MIB,
        "state": {"weights": 100 * MIB, "trainable": 100 * MIB, "slots": 200 * MIB, "activations": 9 * MIB},
        "pipeline": {
            "batches": 8,
            "cpu": 0.05,
            "seconds": 0.06,
            "bytes_read": 1 * MIB,
            "batch_bytes": 64 * MIB,
        },
        "sizes": sizes,
        "notes": [],
        **more,
    }


def amounts(found: tuple[Minimum, ...]) -> dict[str, int]:
    return {each.key: each.amount for each in found}


FILES = Files(stack=2 * GIB, code=1 * MIB, data=3 * GIB)


def test_formula_and_fit_of_a_batch_that_was_not_tried() -> None:
    found = model(read(result()))
    total = found.device(128)
    assert total is not None
    assert total.value == pytest.approx((300 + 128 + 100 + 10 * 128) * MIB, rel=1e-3)
    assert total.low < total.value < total.high
    assert found.formula(128) == (300 + 100 + 128 + 9 * 128) * MIB


def test_the_least_of_each_resource_without_a_gpu() -> None:
    found = minimums(model(read(result())), 64, FILES, gpu=False)
    need = amounts(found)
    held = (900 + 640) * MIB
    assert held + GIB // 2 < need["memory"] < 1.3 * held + GIB
    assert need["memory"] % (GIB // 2) == 0
    assert need["cpus"] == 2
    assert need["disk"] == 20 * GIB, "10 of the system, 2 × 2 of the stack, 3 of data, 0.9 of outputs"
    assert "accelerator.memory" not in need
    assert [each.key for each in found if each.estimated] == ["disk"]


def test_with_a_gpu_that_is_not_here_all_of_it_is_estimated() -> None:
    found = minimums(model(read(result())), 64, FILES, gpu=True)
    need = amounts(found)
    peak = (300 + 64 + 100 + 640) * MIB
    assert peak * 1.1 < need["accelerator.memory"] < peak * 1.2 + 1.5 * GIB
    assert need["memory"] > 3 * GIB, "CUDA's libraries live in main memory"
    assert need["cpus"] == 5, "a small GPU makes the step in 16 ms, for which 50 ms of cores feed it"
    assert all(each.estimated for each in found)


def test_measured_on_a_gpu_nothing_but_the_disk_is_estimated() -> None:
    found = minimums(model(read(result("NVIDIA L4"))), 64, FILES, gpu=True)
    assert {each.key for each in found if each.estimated} == {"disk"}
    assert amounts(found)["cpus"] == 2


@given(batch=st.integers(1, 2000), more=st.integers(1, 2000), gpu=st.booleans())
def test_a_larger_batch_never_asks_for_less_memory(batch: int, more: int, gpu: bool) -> None:
    fitted = model(read(result()))
    few = amounts(minimums(fitted, batch, FILES, gpu=gpu))
    many = amounts(minimums(fitted, batch + more, FILES, gpu=gpu))
    assert all(few[key] <= many[key] for key in few if "memory" in key)


def test_the_screen_says_formula_fit_reasons_and_what_is_estimated() -> None:
    measured = read(result(notes=[{"batch": 64, "why": "time", "seconds": 90.0}]))
    fitted = model(measured)
    found = minimums(fitted, 64, FILES, gpu=True)
    sized = sizing.Sized(fitted, 64, True, found, FILES, (), (), None)
    text = size_text(json.loads(json.dumps(sized.as_json())))
    for term in (
        "weights 100.0",
        "gradients 100.0",
        "slots 200.0",
        "input 64.0",
        "activations 9.0 MiB × batch",
    ):
        assert term in text
    assert max(map(len, text.splitlines())) <= 100
    assert f"{(100 + 100 + 200 + 64 + 9 * 64) / 1024:.1f} GiB" in text, "what the terms add up to"
    assert "50.0 ms of a core and 1.0 MiB read.\n" in text
    assert "× batch" in text.split("fit", 1)[1]
    assert "This computer has no GPU" in text
    assert "a batch of 64 was not tried: it would have taken about 90 s." in text
    assert sized.snippet in text + "\n"
    for each in found:
        assert each.reason in " ".join(text.split())


def test_a_batch_that_reads_next_to_nothing_is_not_said_to_read() -> None:
    pipeline = {"batches": 8, "cpu": 0.05, "seconds": 0.06, "bytes_read": 4, "batch_bytes": 64 * MIB}
    fitted = model(read(result(pipeline=pipeline)))
    sized = sizing.Sized(fitted, 64, False, minimums(fitted, 64, FILES, gpu=False), FILES, (), (), None)
    text = size_text(json.loads(json.dumps(sized.as_json())))
    assert "a batch takes 50.0 ms of a core.\n" in text


# ---------------------------------------------------------------- trials


def course_of(wish: Options, free: int = 1 << 50) -> tuple[Course, list[int]]:
    """What a course tries of a program whose batches have 64 examples, of 1 MiB and a microsecond each."""
    course = Course(wish, lambda: free, lambda: None)
    tried, trials = [], course.run(64)
    rows = next(trials, None)
    while rows is not None:
        tried.append(rows)
        try:
            rows = trials.send(step(rows * MIB, rows * MIB, rows * 1e-6))
        except StopIteration:
            rows = None
    return course, tried


def test_a_quarter_a_half_and_all_of_the_batch_are_tried() -> None:
    course, tried = course_of(Options("out", steps=3))
    assert tried == [16] * 4 + [32] * 4 + [64] * 4, "one to warm up, and three that count"
    assert [size["batch"] for size in course.sizes] == [16, 32, 64]
    assert course.notes == []
    assert planned(Options("out", batch=200), 64) == [50, 100, 200]
    assert planned(Options("out"), 1) == [1, 2, 4]


def test_what_memory_has_no_room_for_is_not_tried_and_said() -> None:
    course, tried = course_of(Options("out", steps=2), free=50 * MIB)
    assert set(tried) == {16, 32}
    assert course.notes == [{"batch": 64, "why": "memory", "bytes": int(64 * MIB * 1.3)}]


def test_without_time_for_larger_ones_a_smaller_one_is_tried() -> None:
    course, tried = course_of(Options("out", budget=0.0))
    assert set(tried) == {16, 8}
    assert [note["why"] for note in course.notes] == ["time", "time"]


# ---------------------------------------------------------------- the profile

PROFILE = """\
# what we train
version: 1
name: digits   # a name
cloud: local
resources:
  memory: 4 GiB           # exactly
  disk: "20 GiB"
max_duration: 4h
train: {command: python train.py}
"""


def test_values_are_put_and_comments_stay() -> None:
    changes: dict[Keys, str] = {
        ("resources", "memory"): "7 GiB+",
        ("resources", "disk"): "15 GiB",
        ("resources", "cpus"): "2+",
    }
    assert edited(PROFILE, changes) == PROFILE.replace(
        "  memory: 4 GiB           # exactly\n", "  cpus: 2+\n  memory: 7 GiB+          # exactly\n"
    ).replace('"20 GiB"', "15 GiB")


def test_a_profile_without_resources_gets_them() -> None:
    text = "version: 1\nname: a\ncloud: local\ntrain: {command: python a.py}"
    assert edited(text, {("resources", "memory"): "1 GiB+"}) == f"{text}\nresources:\n  memory: 1 GiB+\n"


@pytest.mark.parametrize(
    "text",
    ["resources: {cpus: 2}\n", "resources: []\n", "resources:\n  memory: >-\n    4 GiB\n", "a: &b 1\n"],
)
def test_what_is_not_sure_is_refused(text: str) -> None:
    with pytest.raises((NotEditable, Refused)):
        edited(text, {("resources", "memory"): "7 GiB+"})


def sized_for(path: Path, *, gpu: bool = False) -> sizing.Sized:
    fitted = model(read(result()))
    return sizing.Sized(fitted, 64, gpu, minimums(fitted, 64, FILES, gpu=gpu), FILES, (), (), path)


def test_a_change_is_shown_first_and_a_named_gpu_stays(tmp_path: Path) -> None:
    path = tmp_path / "orch.yaml"
    before = PROFILE.replace("resources:\n", "resources:\n  accelerator: T4\n").replace("local", "aws")
    path.write_text(before)
    after, difference = profile_change.change_profile(path, sized_for(path, gpu=True))
    assert path.read_text() == before
    assert "-  memory: 4 GiB           # exactly" in difference
    assert "  accelerator: T4\n" in after
    profile_change.write_minimums(path, before, after)
    assert path.read_text() == after
    assert profile_change.change_profile(path, sized_for(path, gpu=True))[1] == ""


def test_data_that_the_run_read_are_written_with_the_minimums(tmp_path: Path) -> None:
    path = tmp_path / "orch.yaml"
    path.write_text(PROFILE)
    read_here = Undeclared(tmp_path / "my_data", "my_data", None, 2000, 3, True)
    sized = replace(sized_for(path), undeclared=(read_here,))
    after, _ = profile_change.change_profile(path, sized)
    profile_change.write_minimums(path, PROFILE, after)
    assert [tree.source for tree in load(path).data] == [tmp_path / "my_data"]
    assert "reads 2 kB that no profile declares: my_data/ (3 files)." in size_text(sized.as_json())


def test_a_profile_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "orch.yaml"
    path.write_text(PROFILE)
    after, _ = profile_change.change_profile(path, sized_for(path))
    path.write_text(PROFILE + "# mine\n")
    with pytest.raises(UsageError, match="changed by something else meanwhile"):
        profile_change.write_minimums(path, PROFILE, after)
    assert path.read_text() == PROFILE + "# mine\n"
    assert [each.name for each in tmp_path.iterdir()] == ["orch.yaml"]


def test_a_profile_in_another_hand_is_refused_with_the_lines_to_put_in(tmp_path: Path) -> None:
    path = tmp_path / "orch.yaml"
    path.write_text(
        PROFILE.replace(
            'resources:\n  memory: 4 GiB           # exactly\n  disk: "20 GiB"\n',
            "resources: {disk: 9 GiB}\n",
        )
    )
    with pytest.raises(UsageError, match=r"was not changed(.|\n)*resources:\n  cpus: 2\+"):
        profile_change.change_profile(path, sized_for(path))


def test_one_python_thread_is_not_answered_with_cores() -> None:
    """A batch takes four seconds to make, a step a third: many cores, unless one thread makes it."""
    pipeline = {"batches": 8, "cpu": 8.0, "seconds": 8.0, "bytes_read": 4, "batch_bytes": 64 * MIB}
    files = Files(stack=None, code=0, data=0)
    many, one = (
        minimums(model(read(result(pipeline={**pipeline, "one_thread": alone}))), 32, files, gpu=False)[0]
        for alone in (False, True)
    )
    assert many.amount > 2 and one.amount == 2
    assert "one Python thread" in one.reason


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Exception encountered when calling Sequential.call().\n\n\x1b[1mInput 0 is odd\x1b[0m\n\n"
            "Arguments received by Sequential.call():\n  • inputs=…",
            "Exception encountered when calling Sequential.call(). Input 0 is odd",
        ),
        (
            'Graph execution error:\n\nDetected at x\n  File "a.py"\nIncompatible shapes: [1] vs. [2]\n'
            "\t [[{{node x}}]]",
            "Incompatible shapes: [1] vs. [2]",
        ),
        ("", ""),
    ],
)
def test_of_what_frameworks_say_the_cause_is_told(text: str, said: str) -> None:
    assert describe_error(ValueError(text)) == said
