"""orch profile on unmodified scripts: what is planted is named, the fix is tried, nothing of the user's
changes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.project import tiny

ORCH = [sys.executable, "-m", "orchestrator"]

SERIAL = """
import pathlib, time
import keras, numpy as np, tensorflow as tf

pathlib.Path("started").write_text("yes")

def slowly(number):
    def one(number):
        time.sleep(0.01)
        return np.full(8, number, np.float32)
    row = tf.numpy_function(one, [number], tf.float32)
    row.set_shape([8])
    return row, number % 3

data = tf.data.Dataset.range(64).shuffle(64).map(slowly)
data = data.batch(4)
"""
FIT = """
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(data, epochs=100, verbose=0)
raise SystemExit("it was not ended")
"""
LOOP = """
weights = tf.Variable(tf.zeros([8, 3]))

@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ weights)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))

for _ in data.take(3):
    pass
for epoch in range(100):
    for x, y in data:
        step(x, y)
raise SystemExit("it was not ended")
"""


def orch(place: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    """A verb's published object."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    argv = [*ORCH, *arguments]
    done = subprocess.run(
        argv, cwd=place, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == code, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


QUICK = ("--rounds", "3", "--seconds", "0.1", "--json", "--")


@pytest.mark.slow
@pytest.mark.registry
def test_without_a_command_the_lock_s_packages_are_there(tmp_path: Path) -> None:
    project = tiny(tmp_path / "project", tmp_path / "state", "import six, sys; sys.exit(six.__file__)\n")
    failed = project.orch("profile", code=6).out
    assert re.search(r"orch/stacks/\w+/lib/python[\d.]+/site-packages/six\.py$", failed, re.MULTILINE)
    assert failed.endswith("\nNext: orch profile    # once the command succeeds\n")
    named = project.orch("profile", "--", sys.executable, "-c", "raise SystemExit(3)", code=6).out
    assert f"\nNext: orch profile -- {sys.executable} -c 'raise SystemExit(3)'    # once" in named


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_a_slow_map_under_fit_is_named_and_mended(tf_python: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SERIAL + FIT)
    found = orch(tmp_path, "profile", "--try", *QUICK, str(tf_python), "-W", "ignore", "train.py")
    assert (found["schema"], found["measured"], found["bottleneck"]["kind"]) == (
        "orch.profile/1",
        True,
        "serial map",
    )
    stalls = found["differential"]
    assert stalls["loop"] == "fit" and stalls["prep_stall"]["significant"]
    assert (
        stalls["prep_stall"]["share"] > 0.5 and stalls["step"]["warm"] > 0.04
    )  # four times ten milliseconds
    assert stalls["fetch_stall"] is None or not stalls["files_cold"]
    fixes = {each["name"]: each for each in found["tried"]}
    assert {"prefetch", "parallel map", "parallel map + prefetch"} <= set(fixes)
    assert fixes["parallel map"]["achieved"] > 1.3
    assert {each["parity"]["same"] for each in fixes.values()} == {"order"}
    assert "num_parallel_calls=" in found["change"] and "+++ train.py" in found["change"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".orch", "runs", "train.py"]
    kept = Path(found["folder"])
    assert json.loads((kept / "profile.json").read_text()) == found


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_a_loop_is_fed_from_the_pipeline_that_trains(tf_python: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SERIAL + LOOP)
    found = orch(tmp_path, "profile", *QUICK, str(tf_python), "-W", "ignore", "train.py")
    assert found["measured"] and found["differential"]["loop"] == "loop"
    assert found["bottleneck"]["kind"] == "serial map" and found["tried"] == []


def test_a_command_that_trains_nothing_is_told(tmp_path: Path) -> None:
    found = orch(tmp_path, "profile", "--json", "--", sys.executable, "-c", "print(1)")
    assert (found["measured"], found["bottleneck"], found["tried"]) == (False, None, [])
    assert "No training step of TensorFlow was seen" in found["why"]
    assert found["system"]["wall_s"] > 0


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    found = orch(tmp_path, "profile", "--json", "--", sys.executable, "-c", "raise SystemExit(3)", code=6)
    assert not found["measured"] and "before a second training step" in found["why"]


def test_what_may_not_be_written_is_told(tmp_path: Path) -> None:
    program = f"open({str(tmp_path / 'mine')!r}, 'w')"
    (tmp_path / "mine").write_text("kept")
    if str(tmp_path).startswith("/tmp"):  # temporary folders are free to be written
        pytest.skip("the guard leaves temporary folders alone")
    found = orch(tmp_path, "profile", "--json", "--", sys.executable, "-c", program, code=6)
    assert "--in-place" in found["why"] and (tmp_path / "mine").read_text() == "kept"


def test_no_command_and_no_profile_is_a_usage_error(tmp_path: Path) -> None:
    found = orch(tmp_path, "profile", "--json", code=2)
    assert "orch profile -- python train.py" in found["error"]["next_command"]


def test_interrupted_nothing_is_left(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    program = f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    argv = [*ORCH, "profile", "--in-place", "--", sys.executable, "-c", program]
    process = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 120
    while not (marker.exists() and marker.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert not Path(f"/proc/{marker.read_text()}").exists()
    assert list((tmp_path / ".orch" / "here" / "runs").iterdir()) == []
