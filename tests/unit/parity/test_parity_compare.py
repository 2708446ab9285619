"""Two recorded runs → the first stage that differs, the size, the verdict."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator import parity
from orchestrator.model import Verdict
from orchestrator.parity.naming import HERE_AND_THERE
from orchestrator.parity.recording import read
from tests.unit.parity_runs import ENVIRONMENT, Run, Value, step


def nudged(number: float) -> float:
    """The next float32."""
    return number * (1 + 2.0**-23)


def compare(tmp_path: Path, a: Run, b: Run) -> Verdict:
    return parity.compare(a.write(tmp_path / "a"), b.write(tmp_path / "b"))


def test_equal_runs_are_identical(tmp_path: Path) -> None:
    found = compare(tmp_path, Run([step(), step()]), Run([step(), step()]))
    assert (found.verdict, found.compared, found.steps, found.divergence) == ("IDENTICAL", 20, 2, None)


@pytest.mark.parametrize(
    ("change", "stage", "tensor", "verdict"),
    [
        ({"batch_data_0": [1.0, 2.0, 3.0, 9.0]}, "batch", "data/0", "DIVERGENT"),
        ({"initial_a_kernel": [nudged(0.5), 0.25, -1.0]}, "initial", "a/kernel", "DIVERGENT"),
        ({"activation_b": [3.0, nudged(5.0)]}, "activation", "b", "EQUIVALENT"),
        ({"activation_b": [3.0, 6.0]}, "activation", "b", "DIVERGENT"),
        ({"loss_loss": [nudged(0.75)]}, "loss", "loss", "EQUIVALENT"),
        ({"gradient_a_kernel": [0.5, -0.5, nudged(1.0)]}, "gradient", "a/kernel", "EQUIVALENT"),
        ({"update_b_kernel": [0.1, 2.8]}, "update", "b/kernel", "DIVERGENT"),
    ],
)
def test_each_stage_is_named(
    tmp_path: Path, change: dict[str, list[float]], stage: str, tensor: str, verdict: str
) -> None:
    found = compare(tmp_path, Run([step(), step()]), Run([step(), step(**change)]))
    assert found.divergence is not None
    assert (found.divergence.step, found.divergence.stage, found.divergence.tensor) == (2, stage, tensor)
    assert found.verdict == verdict
    assert found.cause is not None and found.cause.startswith("Suspected") and not found.confirmed


def test_the_gradient_that_backpropagation_reaches_first_is_named(tmp_path: Path) -> None:
    change = {"gradient_a_kernel": [0.5, -0.5, 2.0], "gradient_b_kernel": [0.25, nudged(1.5)]}
    found = compare(tmp_path, Run([step()]), Run([step(**change)]))
    assert found.divergence is not None and found.divergence.tensor == "b/kernel"
    assert found.verdict == "DIVERGENT", "the other gradient's difference is no rounding"
    assert "1 more" in found.detail


def test_a_gradient_that_is_all_rounding_counts_against_its_stage(tmp_path: Path) -> None:
    change = {"gradient_b_kernel": [3e-9, -2e-9]}
    cancelled = {"gradient_b_kernel": [1e-9, 5e-9]}
    found = compare(tmp_path, Run([step(**change)]), Run([step(**cancelled)]))
    assert found.verdict == "DIVERGENT", "alone, it has nothing to be small against"
    change["gradient_a_kernel"], cancelled["gradient_a_kernel"] = [0.5, -0.5, 1.0], [nudged(0.5), -0.5, 1.0]
    found = compare(tmp_path, Run([step(**change)]), Run([step(**cancelled)]))
    assert found.verdict == "EQUIVALENT"


def test_order_is_told_from_content(tmp_path: Path) -> None:
    turned = Run([step(batch_data_0=[4.0, 3.0, 2.0, 1.0])])
    found = compare(tmp_path, Run([step()]), turned)
    assert found.divergence is not None and "same 4 records in another order" in found.divergence.detail
    assert found.cause is not None and "another order" in found.cause


def test_the_same_records_over_several_batches_are_an_order(tmp_path: Path) -> None:
    a = Run([step(batch_data_0=[1, 2, 3, 4]), step(batch_data_0=[5, 6, 7, 8])])
    b = Run([step(batch_data_0=[3, 4, 5, 6]), step(batch_data_0=[7, 8, 1, 2])])
    found = compare(tmp_path, a, b)
    assert found.divergence is not None and "2 of 4 records are the same" in found.divergence.detail
    assert found.cause is not None and "same records come in another order" in found.cause


def test_another_dtype_is_no_rounding(tmp_path: Path) -> None:
    wide = [*step()]
    wide[3] = Value("activation", "a", [1.0, 2.0, 4.0], "float64")
    found = compare(tmp_path, Run([step()]), Run([wide]))
    assert found.verdict == "DIVERGENT"
    assert found.divergence is not None and found.divergence.detail.startswith("float32 in A, float64 in B")


def test_half_precision_has_a_larger_rounding(tmp_path: Path) -> None:
    a, b = [*step()], [*step()]
    a[3] = Value("activation", "a", [0x3F80] * 64, "bfloat16")
    b[3] = Value("activation", "a", [0x3F80] * 63 + [0x3F81], "bfloat16")
    found = compare(tmp_path, Run([a]), Run([b]))
    assert found.verdict == "EQUIVALENT"
    assert found.divergence is not None and "at most 1 ULP" in found.divergence.detail


def test_a_tensor_without_copies_differs_without_a_size(tmp_path: Path) -> None:
    a, b = [*step()], [*step(activation_b=[3.0, nudged(5.0)])]
    a[4], b[4] = (Value("activation", "b", v[4].numbers, kept=False) for v in (a, b))
    found = compare(tmp_path, Run([a]), Run([b]))
    assert found.verdict == "DIVERGENT" and found.divergence is not None and found.divergence.relative is None


def test_a_tensor_of_one_side_alone_is_a_difference(tmp_path: Path) -> None:
    more = [*step(), Value("activation", "c", [1.0])]
    found = compare(tmp_path, Run([step()]), Run([more]))
    assert found.divergence is not None and "c exists in B alone" in found.divergence.detail


def test_a_tensor_that_one_side_could_not_read_is_none(tmp_path: Path) -> None:
    more = [*step(), Value("activation", "c", [1.0])]
    found = compare(tmp_path, Run([step()], unread=["activation/c"]), Run([more]))
    assert found.verdict == "IDENTICAL"


def test_data_that_no_compared_step_shows_is_told_all_the_same(tmp_path: Path) -> None:
    def having(content: str) -> Run:
        entry = {"name": "data/x.npy", "path": "/p/data/x.npy", "bytes": 8, "sha256": content * 64}
        return Run([step()], environment={**ENVIRONMENT, "files": {"list": [entry]}})

    found = compare(tmp_path, having("a"), having("b"))
    assert found.verdict == "IDENTICAL" and "data/x.npy has other content" in found.detail
    assert "other data" not in compare(tmp_path / "same", having("a"), having("a")).detail


def test_different_numbers_of_steps(tmp_path: Path) -> None:
    found = compare(tmp_path, Run([step(), step()]), Run([step()]))
    assert found.verdict == "DIVERGENT"
    assert found.divergence is not None and found.divergence.stage == "steps"


def test_a_run_that_failed_early_is_not_compared(tmp_path: Path) -> None:
    a, b = Run([step(), step()]).write(tmp_path / "a"), Run([step()]).write(tmp_path / "b")
    (b / "exit.json").write_text(json.dumps({"reason": "out_of_memory", "detail": "Memory was used up."}))
    found = parity.compare(a, b)
    assert found.verdict == "NOT COMPARED" and "out_of_memory" in found.detail


def test_asking_for_fewer_steps_is_no_difference(tmp_path: Path) -> None:
    found = compare(tmp_path, Run([step(), step()]), Run([step()], requested=1))
    assert (found.verdict, found.steps) == ("IDENTICAL", 1)


def test_nothing_recorded_is_not_compared_and_says_why(tmp_path: Path) -> None:
    a = Run([step()]).write(tmp_path / "a")
    assert "no observe folder" in parity.compare(a, tmp_path).detail
    silent = Run([], notes=[{"what": "Keras on jax", "why": "only TensorFlow is observed"}])
    found = parity.compare(a, silent.write(tmp_path / "b"))
    assert found.verdict == "NOT COMPARED" and "Keras on jax" in found.detail


def test_what_was_not_seen_is_said_even_when_identical(tmp_path: Path) -> None:
    run = Run([step()], notes=[{"what": "compiled tensors", "why": "XLA"}])
    found = compare(tmp_path, run, run)
    assert found.verdict == "IDENTICAL" and "Not compared: compiled tensors: XLA" in found.detail


def test_batches_alone_prove_nothing(tmp_path: Path) -> None:
    run = Run([[v for v in step() if v.stage == "batch"]])
    assert compare(tmp_path, run, run).verdict == "NOT COMPARED"


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    a, b = Run([step(), step()]).write(tmp_path / "a"), Run([step(), step()]).write(tmp_path / "b")
    index = b / "observe" / "steps.jsonl"
    index.write_text(index.read_text()[:-40])
    found = parity.compare(a, b)
    assert found.divergence is not None and found.divergence.stage == "steps" and found.steps == 1


def test_a_recording_of_a_later_format_is_refused(tmp_path: Path) -> None:
    a, b = Run([step()]).write(tmp_path / "a"), Run([step()]).write(tmp_path / "b")
    index = b / "observe" / "steps.jsonl"
    index.write_text(index.read_text().replace('"v": 1', '"v": 2'))
    found = parity.compare(a, b)
    assert found.verdict == "NOT COMPARED" and "format 2" in found.detail


PLACES = [(number, value) for number in (1, 2) for value in range(len(step()))]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), factor=st.sampled_from([1 + 2.0**-23, 1.5]), element=st.integers(0, 9))
def test_one_changed_element_is_found_where_it_is(
    tmp_path: Path, place: tuple[int, int], factor: float, element: int
) -> None:
    steps = [step(), step()]
    value = steps[place[0] - 1][place[1]]
    numbers = list(value.numbers)
    numbers[element % len(numbers)] *= factor
    value.numbers = numbers
    there = compare(tmp_path, Run([step(), step()]), Run(steps))
    back = compare(tmp_path, Run(steps), Run([step(), step()]))
    assert there.divergence is not None and back.divergence is not None
    assert (there.divergence.step, there.divergence.stage, there.divergence.tensor) == (
        place[0],
        value.stage,
        value.name,
    )
    assert (there.verdict, there.divergence.relative) == (back.verdict, back.divergence.relative)
    small = factor < 1.1 and value.stage not in ("batch", "initial")
    assert there.verdict == ("EQUIVALENT" if small else "DIVERGENT")
    assert there.divergence.relative is not None and math.isfinite(there.divergence.relative)


def test_sides_are_called_by_their_places(tmp_path: Path) -> None:
    files = [
        {"list": [{"name": "in A/x.npy", "path": "/p/in A/x.npy", "bytes": n, "sha256": str(n)}]}
        for n in (1, 2)
    ]
    facts = [{**ENVIRONMENT, "files": each} for each in files]
    facts[1]["cpu"] = {"count": 4, "flags": ["avx2"]}
    sides = [
        Run([step(batch_data_0=[n, 2.0, 3.0, 4.0])], requested=1, environment=each)
        for n, each in enumerate(facts)
    ]
    a, b = (read(run.write(tmp_path / str(number))) for number, run in enumerate(sides))
    found = parity.judge(a, b, HERE_AND_THERE)
    assert found.divergence is not None
    seen = found.divergence.detail
    assert seen == "in A/x.npy has other content: 1 byte (sha256 1) here, 2 bytes (sha256 2) there"
    assert "the processors differ: the run here alone has avx512f" in found.detail
    assert "the number of usable cores: 2 here, 4 there" in found.detail
    same = parity.judge(read(tmp_path / "none"), a, HERE_AND_THERE)
    assert same.detail.startswith("Nothing was observed here: ")
    failed = replace(b, steps=(), failure="killed", requested=1)
    more = replace(a, steps=(*a.steps, *a.steps), requested=2)
    less = replace(a, requested=2, failure="killed (it is late)")
    assert "The run there ended after 1 step: killed" in parity.judge(more, less, HERE_AND_THERE).detail
    assert parity.judge(a, failed, HERE_AND_THERE).detail.startswith("Nothing was observed there: ")


def test_what_one_side_could_not_read_is_said_where_it_would_come_first(tmp_path: Path) -> None:
    blind = [value for value in step() if (value.stage, value.name) != ("activation", "a")]
    a, b = Run([step(), step()]), Run([blind, blind], unread=["activation/a"])
    said = " Not compared: the output of a (TensorFlow computes it in one with what reads it)."
    assert said in compare(tmp_path / "1", a, b).detail
    late = Run([[*blind[:-1], Value("update", "b/kernel", [9.0, 9.0])]] * 2, unread=["activation/a"])
    assert said in compare(tmp_path / "2", a, late).detail
    early = Run([[Value("batch", "data/0", [9.0, 2.0, 3.0, 4.0]), *blind[1:]]] * 2, unread=["activation/a"])
    assert said not in compare(tmp_path / "3", a, early).detail


def test_a_file_of_another_dtype_that_is_cast_away_is_harmless(tmp_path: Path) -> None:
    def side(digest: str, dtype: str) -> Run:
        entry = {"name": "x.npy", "path": "/x.npy", "bytes": 1, "sha256": digest, "way": "python"}
        values = [Value("batch", "data/0", [1.0, 2.0], dtype), *step()[1:]]
        return Run([values, values], environment={**ENVIRONMENT, "files": {"list": [entry]}})

    found = compare(tmp_path, side("1", "float32"), side("2", "float64"))
    assert found.verdict == "EQUIVALENT" and str(found.cause).startswith("Harmless")
    assert (
        found.divergence and found.divergence.stage == "batch" and "x.npy has other content" in found.detail
    )
