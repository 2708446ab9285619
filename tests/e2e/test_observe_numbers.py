"""Observation does not perturb: final weights are the same to the bit with and without it, in every style."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.parity.recording import Recording, Step, read
from tests.nightly import NIGHTLY

RUNTIME = Path(__file__).resolve().parents[2] / "orchestrator" / "runtime"
PROGRAM = Path(__file__).with_name("observe_variants.py")

ALWAYS = [
    "fit",
    "steps_per_execution",
    "train_step",
    "eager",
    "residual",
    "float16",
    "compiled",
]
AT_NIGHT = [
    "function",
    "outer_tape",
    "epoch",
    "residual_sgd",
    "late_fit",
    "unshaped",
    "late_function",
    "bfloat16",
    "two_tapes",
    "unrolled",
]
STYLES = [*ALWAYS, *AT_NIGHT] if NIGHTLY else ALWAYS
GRAPH_STYLES = [style for style in STYLES if style not in ("compiled", "outer_tape", "two_tapes", "unrolled")]

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def trained(tf_python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Every style trained without and with hooks; where the recordings are, and the outcomes by style."""
    root = tmp_path_factory.mktemp("root")
    (root / "orch_runtime").symlink_to(RUNTIME)
    out = tmp_path_factory.mktemp("runs")
    command = [str(tf_python), "-W", "ignore", str(PROGRAM), str(root), str(out), *STYLES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return out, {line["variant"]: line for line in lines}


@pytest.fixture
def recorded(trained: tuple[Path, dict[str, Any]], request: pytest.FixtureRequest) -> Recording:
    return read(trained[0] / request.param)


@pytest.mark.parametrize("style", STYLES)
def test_final_weights_are_the_same_to_the_bit(trained: tuple[Path, dict[str, Any]], style: str) -> None:
    outcome = trained[1][style]
    assert "sha256" in outcome["without"], outcome["without"]
    assert outcome["with"] == outcome["without"]


@pytest.mark.parametrize("style", STYLES)
def test_the_steps_that_were_asked_for_are_recorded(trained: tuple[Path, dict[str, Any]], style: str) -> None:
    recorded = read(trained[0] / style)
    assert [step.number for step in recorded.steps] == [1, 2, 3], recorded.why
    assert bool(recorded.not_compared) == (style == "compiled")


@pytest.mark.parametrize("recorded", GRAPH_STYLES, indirect=True)
def test_the_whole_ladder_is_there(recorded: Recording) -> None:
    first = recorded.steps[0]
    for stage in ("batch", "initial", "activation", "loss", "gradient", "update"):
        assert first.stage(stage), stage
    kernels = {name for name in first.stage("update") if name.endswith("kernel") and "/" in name}
    assert kernels and kernels <= set(first.stage("initial"))
    gradients = {f"gradient/{name}" for name in first.stage("gradient")} | first.unread
    assert {f"gradient/{name}" for name in kernels} <= gradients
    assert _slots(first), "the optimizer's state"


@pytest.mark.parametrize("recorded", [*GRAPH_STYLES, "compiled"], indirect=True)
def test_initial_values_are_read_once_they_are_there(recorded: Recording) -> None:
    """Also where model and optimizer are built while the step is traced."""
    first = recorded.steps[0]
    assert set(first.stage("update")) <= set(first.stage("initial"))
    for name, tensor in first.stage("update").items():
        assert first.stage("initial")[name].shape == tensor.shape, name


@pytest.mark.parametrize("recorded", GRAPH_STYLES, indirect=True)
def test_labels_are_part_of_the_batch(recorded: Recording) -> None:
    for step in recorded.steps:
        labels = [tensor for tensor in step.stage("batch").values() if tensor.dtype == "int64"]
        assert labels and labels[0].shape == (32,)
        assert next(iter(step.records.values())).count == 32


@pytest.mark.parametrize("recorded", sorted({*GRAPH_STYLES} - {"float16"}), indirect=True)
def test_each_step_begins_where_the_last_one_ended(recorded: Recording) -> None:
    """Updates are read after they happened, and initial weights before: no two of them are alike.

    Not so for float16, whose loss scaling skips updates until the scale fits.
    """
    first, second, third = recorded.steps
    for name, tensor in first.stage("initial").items():
        if name.endswith("kernel") and name in first.stage("update"):
            values = {tensor.sha256, *(step.stage("update")[name].sha256 for step in (first, second, third))}
            assert len(values) == 4, name


@pytest.mark.parametrize("recorded", ["fit"], indirect=True)
def test_styles_that_compute_the_same_are_recorded_alike(
    trained: tuple[Path, dict[str, Any]], recorded: Recording
) -> None:
    assert trained[1]["steps_per_execution"]["with"] == trained[1]["fit"]["with"]
    other = read(trained[0] / "steps_per_execution")
    for mine, theirs in zip(recorded.steps, other.steps, strict=True):
        assert _digests(mine) == _digests(theirs)


@pytest.mark.parametrize("recorded", ["residual"], indirect=True)
def test_what_the_optimiser_merges_is_left_unread_and_said(recorded: Recording) -> None:
    assert "activation/rescaling" in recorded.steps[0].unread
    assert "rescaling" not in recorded.steps[0].stage("activation")


@pytest.mark.parametrize("recorded", ["compiled"], indirect=True)
def test_compiled_steps_are_seen_from_outside_and_said_to_be(recorded: Recording) -> None:
    assert "XLA" in recorded.not_compared[0]
    first = recorded.steps[0]
    assert first.stage("batch") and first.stage("initial") and first.stage("update") and first.stage("loss")
    assert not first.stage("activation")


def _slots(step: Step) -> list[str]:
    return [name for name in step.stage("update") if "momentum" in name or "iteration" in name]


def _digests(step: Step) -> list[tuple[str, str, str]]:
    """Metrics left out: what a call of several steps reports belongs to its last one alone."""
    return [(t.stage, t.name, t.sha256) for t in step.tensors if t.stage != "metrics"]
