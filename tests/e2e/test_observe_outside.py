"""Keras on JAX, in an environment without TensorFlow: steps, seen from outside, stay what they were."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator import stack
from orchestrator.model import RunRecord, Verdict

LOCKS = Path(__file__).resolve().parents[1] / "parity" / "locks"
SCRIPT = """\
import sys
import keras
import numpy as np

keras.utils.set_random_seed(int(sys.argv[1]))
x = np.random.default_rng(0).random((96, 8), dtype="float32")
y = (x.sum(1) > 4).astype("int32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.2)])
model.add(keras.layers.Dense(2))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"], steps_per_execution=2)
model.fit(x, y, batch_size=16, epochs=2, verbose=0)
model.save("model.keras")
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Job:
    """A script on JAX, and what became of it each time that it was started."""

    def __init__(self, folder: Path) -> None:
        lock = stack.read_lock(LOCKS / "jax.lock")
        self.python = str(stack.local_environment(lock, LOCKS, None).python)
        self.folder = folder
        (folder / "train.py").write_text(SCRIPT)
        self._command = [self.python, "train.py"]
        self.weights: dict[str, str] = {}
        self._records: dict[str, RunRecord] = {}

    def plain(self) -> None:
        subprocess.run([*self._command, "1"], cwd=self.folder, check=True, capture_output=True, timeout=120)
        self._saved("plain")

    def record(self, name: str, seed: str) -> None:
        command = [*self._command, seed]
        self._records[name] = orch.record(command, steps=3, light=2, run_id=name, folder=self.folder)
        self._saved(name)

    def _saved(self, name: str) -> None:
        with zipfile.ZipFile(self.folder / "model.keras") as archive:
            self.weights[name] = hashlib.sha256(archive.read("model.weights.h5")).hexdigest()

    def compared(self, a: str, b: str) -> Verdict:
        return orch.compare(self._records[a].folder, self._records[b].folder, folder=self.folder)

    def steps(self, name: str) -> list[dict[str, object]]:
        text = (self._records[name].folder / "observe" / "steps.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    made = Job(tmp_path_factory.mktemp("jax"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "jax")
        patch.chdir(made.folder)
        made.plain()
        made.record("one", "1")
        made.record("again", "1")
        made.record("other", "2")
    return made


def test_the_weights_are_those_of_a_run_that_nobody_watched(job: Job) -> None:
    assert job.weights["one"] == job.weights["plain"] != job.weights["other"]


def test_each_step_is_seen_though_a_call_makes_two(job: Job) -> None:
    full = [line for line in job.steps("one") if line["event"] == "step"]
    stages = [{tensor["stage"] for tensor in line["tensors"]} for line in full]  # type: ignore[attr-defined]
    assert stages[0] == {"batch", "initial", "loss", "update", "metrics"}
    assert stages[1:] == [{"batch", "loss", "update", "metrics"}] * 2
    assert [line["step"] for line in job.steps("one") if line["event"] == "light"] == [4, 5]


def test_equal_runs_are_identical_and_what_was_not_seen_is_said(job: Job) -> None:
    found = job.compared("one", "again")
    assert found.verdict == "IDENTICAL" and found.steps == 3
    assert "layers and gradients of Keras on jax" in found.detail


def test_another_seed_is_found(job: Job) -> None:
    found = job.compared("one", "other")
    assert found.verdict == "DIVERGENT" and found.divergence is not None
    assert found.divergence.stage == "batch"
    assert found.cause is not None and "“1” in A, “2” in B" in found.cause


def test_the_model_loads_and_predicts_where_nobody_says_on_what(job: Job) -> None:
    runtime = Path(orch.__file__).parent / "runtime"
    (job.folder / "orch_runtime").symlink_to(runtime)
    environ = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    command = [job.python, "-m", "orch_runtime", "check-model", "model.keras"]
    done = subprocess.run(
        command, cwd=job.folder, env=environ, capture_output=True, text=True, timeout=120, check=True
    )
    found = json.loads(done.stdout)
    assert found["loaded"] and found["outputs"][0]["shape"] == [4, 2]
