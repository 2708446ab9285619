"""Which fixes are offered for a pipeline: none that the computer's memory cannot hold, or might not."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

OFFERED = """
import json, sys
import tensorflow as tf
from orchestrator.runtime.stalls import calls
from orchestrator.runtime.stalls.fixes import Wishes, fixes

calls.record(tf)
records = sys.argv[1]
with tf.io.TFRecordWriter(records) as writer:
    for _ in range(100):
        writer.write(b"1" * 1000)

def offered(dataset, room):
    found = {fix.name: fix for fix in fixes(dataset, Wishes(2, False, 2, 8, room), {}, 0.0)}
    return found["cache"].facts["bytes"] if "cache" in found else None

def wide(number):
    return tf.fill([1000], tf.cast(number, tf.float32))

def small(row):
    return tf.random.uniform([1]) + row[:1]

read = tf.data.TFRecordDataset(records).map(lambda text: tf.strings.length(text)).batch(10)
made = tf.data.Dataset.range(100).map(wide).batch(10)
cut = tf.data.Dataset.range(100).map(wide).map(small).batch(10)
print(json.dumps({
    "unknown": offered(read, 1 << 40),
    "fits": offered(made, 500_000),
    "does not fit": offered(made, 300_000),
    "larger where it is kept": offered(cut, 300_000),
    "kept before": offered(cut, 500_000),
}))
"""


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_a_cache_is_offered_only_where_it_is_known_to_fit(tf_python: Path, tmp_path: Path) -> None:
    script = tmp_path / "offered.py"
    script.write_text(OFFERED)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        [tf_python, "-W", "ignore", script, tmp_path / "a.tfrecord"],
        env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {
        "unknown": None,
        "fits": 400_000,
        "does not fit": None,
        "larger where it is kept": None,
        "kept before": 400_000,
    }
