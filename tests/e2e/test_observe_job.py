"""Real programs, unmodified, observed from outside; what is planted between two runs is named."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator import parity
from orchestrator.model import Verdict

RUNTIME = Path(__file__).resolve().parents[2] / "orchestrator" / "runtime"

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(900)]

TRAIN = """
import argparse, pathlib, sys
import keras, numpy as np, tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()
keras.utils.set_random_seed(options.seed)
random = np.random.RandomState(0)
images, labels = random.rand(96, 8, 8, 1).astype("float32"), random.randint(0, 10, 96)
model = keras.Sequential(
    [keras.Input((8, 8, 1)), keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.Flatten(),
     keras.layers.Dropout(0.2), keras.layers.Dense(10, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(tf.data.Dataset.from_tensor_slices((images, labels)).batch(96).repeat(4), epochs=2, verbose=0)
pathlib.Path("finished").write_text("yes")
print("the end", flush=True)
"""

Record = Callable[..., Path]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(TRAIN)
    return folder


@pytest.fixture(scope="module")
def record(tf_python: Path, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Runs a shell line in the project's folder, recorded; `$PY` is the Python. The run's folder."""
    root = tmp_path_factory.mktemp("root")
    (root / "orch_runtime").symlink_to(RUNTIME)
    hook = {
        "PYTHONPATH": str(root / "orch_runtime" / "hook"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PY": str(tf_python),
    }

    def run(line: str, *, stop: bool = True, **environ: str) -> Path:
        folder = tmp_path_factory.mktemp("run")
        wish = {"ORCH_OBSERVE_DIR": str(folder / "observe"), "ORCH_OBSERVE_STEPS": "2"}
        wish["ORCH_OBSERVE_STOP"] = "1" if stop else ""
        environment = {**os.environ, **hook, **wish, **environ}
        done = subprocess.run(
            ["sh", "-ec", line],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        (folder / "output").write_text(done.stdout)
        return folder

    return run


@pytest.fixture(scope="module")
def reference(record: Record) -> Path:
    """Two trainings one after the other in one recorded run, of which the first is stopped."""
    return record("$PY train.py; test ! -e finished; $PY train.py --seed 2")


def found(verdict: Verdict) -> tuple[str, str | None]:
    return verdict.verdict, verdict.divergence.stage if verdict.divergence else None


def test_it_stops_after_the_steps_that_were_asked_for(reference: Path) -> None:
    step, process = (reference / "observe" / "stopped").read_text().split()
    assert step == "2" and int(process) > 0
    status = json.loads((reference / "observe" / "status.json").read_text())
    assert (status["state"], status["steps"], status["not_compared"]) == ("complete", 2, [])


def test_the_second_of_two_trainings_is_left_alone(reference: Path) -> None:
    assert (reference / "output").read_text() == "the end\n", "only the recorded one is stopped"
    assert list((reference / "observe").glob("status-*.json"))


def test_what_acts_is_recorded(reference: Path) -> None:
    facts = json.loads((reference / "observe" / "environment.json").read_text())
    assert list(facts["modules"]) == ["train.py"]
    assert facts["models"] == [
        {"jit_compile": False, "name": "sequential", "run_eagerly": False, "steps_per_execution": 1}
    ]
    assert facts["optimizers"][0]["config"]["learning_rate"] == pytest.approx(0.001)
    assert (facts["argv"], facts["keras"]["policy"]) == ([], "float32")
    assert facts["tensorflow"]["devices"] == ["CPU:0"]


def test_started_otherwise_and_run_to_its_end_it_is_the_same(record: Record, reference: Path) -> None:
    line = (
        "exec $PY -c \"import subprocess, sys; subprocess.run([sys.executable, '-m', 'train'], check=True)\""
    )
    other = record(line, stop=False, PYTHONHASHSEED="1")  # on which nothing here depends: not accused
    assert (other / "output").read_text() == "the end\n"
    verdict = parity.compare(reference, other)
    assert found(verdict) == ("IDENTICAL", None), verdict.detail
    assert verdict.steps == 2 and verdict.compared > 40


def test_a_variable_that_changes_the_arithmetic_is_named(
    record: Record, reference: Path, other_onednn: str
) -> None:
    verdict = parity.compare(reference, record("$PY train.py", TF_ENABLE_ONEDNN_OPTS=other_onednn))
    if verdict.verdict == "IDENTICAL":
        pytest.skip("on this processor oneDNN rounds as TensorFlow's own kernels do")
    assert verdict.verdict == "EQUIVALENT", verdict.detail
    assert (
        verdict.cause is not None
        and f"TF_ENABLE_ONEDNN_OPTS is not set in A and {other_onednn} in B" in verdict.cause
    )
    assert verdict.divergence is not None and verdict.divergence.stage in ("activation", "gradient")
