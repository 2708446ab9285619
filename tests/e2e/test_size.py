"""orch size on real programs: every way of training, and what becomes of those that do not train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import LocalError, RunFailed, UsageError
from orchestrator.report.size import size_text
from orchestrator.sizing import size as sizing
from tests.e2e.size_jobs import JOBS

RUNTIME = Path(__file__).resolve().parents[2] / "orchestrator" / "runtime"

TRAIN = """
import pathlib, sys
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(1)
images, labels = np.random.rand(256, 16, 16, 3).astype("float32"), np.random.randint(0, 10, 256)
model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Conv2D(32, 3, activation="relu"),
                          keras.layers.Flatten(), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
pathlib.Path("begun").write_text("here")
model.fit(tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(64).batch(64), epochs=3, verbose=0)
pathlib.Path("finished").write_text("yes")
"""


@pytest.fixture(scope="module")
def results(tf_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was found of each job, by its name."""
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "orch_runtime").symlink_to(RUNTIME)
    script = Path(__file__).with_name("size_jobs.py")
    argv = [str(tf_python), str(script), str(folder), str(folder)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    subprocess.run(argv, check=True, timeout=580, env=environment, capture_output=True)
    return {job.__name__: json.loads((folder / f"{job.__name__}.json").read_text()) for job in JOBS}


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.timeout(600)
class TestWaysOfTraining:
    @pytest.mark.parametrize(
        ("job", "kind", "own"),
        [
            ("fit", "fit", 32),
            ("arrays_in_fit", "fit", 16),
            ("several_steps_a_call", "fit", 16),
            ("train_on_batch", "fit", 32),
            ("function", "function", 32),
            ("eager", "eager", 32),
            ("dataset_in_a_function", "function", 32),
        ],
    )
    def test_a_step_is_repeated_with_other_batches(
        self, results: dict[str, Any], job: str, kind: str, own: int
    ) -> None:
        found = results[job]
        assert (found["end"], found["kind"], found["own_batch"]) == ("done", kind, own), found
        assert [size["batch"] for size in found["sizes"]] == [own // 4, own // 2, own]
        assert all(step["peak"] > 0 for size in found["sizes"] for step in size["steps"])
        assert found["batch_bytes"] >= own * 64 * 4

    def test_what_is_kept_is_told_by_formula(self, results: dict[str, Any]) -> None:
        weights = (64 * 256 + 256 + 256 * 10 + 10) * 4
        for job, slots in (("fit", 0), ("function", 2), ("eager", 2), ("train_on_batch", 0)):
            state = results[job]["state"]
            assert state["trainable"] == weights, job
            assert slots * weights <= state["slots"] <= slots * weights + 64, job
        assert results["fit"]["state"]["activations"] == (256 + 10) * 4
        assert results["dataset_in_a_function"]["state"]["weights"] == 64 * 10 * 4

    def test_a_program_that_takes_one_size_only_is_measured_at_that(self, results: dict[str, Any]) -> None:
        found = results["batch_of_fixed_size"]
        assert [size["batch"] for size in found["sizes"]] == [32]
        assert found["notes"][0]["why"] == "failed"
        assert found["notes"][0]["batch"] == 8

    def test_a_function_that_makes_its_own_batches_is_said_to(self, results: dict[str, Any]) -> None:
        assert results["batch_by_itself"]["end"] == "no batch"
        assert "gets its data by itself" in results["batch_by_itself"]["detail"]

    def test_prediction_is_no_training(self, results: dict[str, Any]) -> None:
        assert results["no_training"]["end"] == "no step"


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_script_is_sized_and_its_folder_stays_as_it_was(
    tf_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("open('my_data/x').read()\n" + TRAIN)
    (tmp_path / "my_data").mkdir()
    (tmp_path / "my_data" / "x").write_text("x" * 2000)
    (tmp_path / ".gitignore").write_text("my_data\n")
    monkeypatch.chdir(tmp_path)
    sized = sizing.size(None, [str(tf_python), "train.py"], folder=tmp_path, gpu=True)
    assert (sized.batch, [each.batch for each in sized.model.measured.sizes]) == (64, [16, 32, 64])
    need = {each.key: each for each in sized.minimums}
    assert set(need) == {"cpus", "memory", "accelerator.memory", "disk"}
    assert need["accelerator.memory"].estimated
    assert sized.offers and all(
        offer.gpu_memory >= need["accelerator.memory"].amount for offer in sized.offers
    )
    activations = 14 * 14 * 32 * 4
    slope = sized.as_json()["memory"]["fit"]["slope"]
    assert activations < slope["value"] < 10 * activations, "what the convolution hands on, and its gradient"
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".gitignore", ".orch", "my_data", "train.py"]
    said = "The script reads 2 kB that no profile declares: my_data/ (1 file)."
    assert said in size_text(sized.as_json()), "what the machine would lack"
    assert list((tmp_path / ".orch" / "here" / "runs").iterdir()) == []


# ---------------------------------------------------------------- what is not to be sized, told to people


def size_of(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "job.py").write_text(text)
    monkeypatch.chdir(folder)
    sizing.size(None, [sys.executable, "job.py"], folder=folder)


def test_a_program_without_tensorflow_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"never imported TensorFlow(.|\n)*hello"):
        size_of("print('hello')", tmp_path, monkeypatch)


def test_a_program_that_fails_is_told_of_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunFailed, match=r"failed before(.|\n)*No module named 'no_such_thing'"):
        size_of("import no_such_thing", tmp_path, monkeypatch)


def test_what_a_program_may_not_change_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "project" / "precious.txt"
    other.parent.mkdir()
    other.write_text("mine")
    with pytest.raises(UsageError, match="precious"):
        size_of(f"open({str(other)!r}, 'w')", other.parent, monkeypatch)
    assert other.read_text() == "mine"


def test_a_program_that_the_kernel_killed_did_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LocalError, match="memory is too small"):
        size_of("import os; os.kill(os.getpid(), 9)", tmp_path, monkeypatch)


def test_a_program_that_trains_too_late_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.py").write_text("import time; print('waiting', flush=True); time.sleep(600)")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"No training step was complete after 3 s(.|\n)*waiting"):
        sizing.size(None, [sys.executable, "job.py"], folder=tmp_path, limit=3)


def test_nothing_to_size_is_said_with_the_next_command() -> None:
    with pytest.raises(UsageError) as found:
        sizing.size()
    assert found.value.next_command and "orch size" in found.value.next_command
