"""Small trainings, each in a forked child, with the step clock and without; prints what each gave as JSON.

`stepclock_jobs.py PLACE ROOT CASE…`: traces go to PLACE, ROOT holds orchestrator.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="0")

import keras
import numpy as np
import tensorflow as tf


def small_model(steps_per_execution: int = 1, width: int = 64, **more: Any) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(width, "relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, steps_per_execution=steps_per_execution, **more)
    return model


def batches(slow: float = 0.0, prefetch: int = 0, count: int = 20) -> Any:
    """Batches of 32; `slow` seconds of sleep in the map for each, and a random number of TensorFlow's own."""
    x = np.random.RandomState(0).rand(count * 32, 64).astype("f4")
    y = (x.sum(1) * 7 % 10).astype("i4")

    def work(images: Any, labels: Any) -> Any:
        def sleep(value: Any) -> Any:
            time.sleep(slow)
            return value

        if slow:
            slept = tf.numpy_function(sleep, [images], tf.float32)
            slept.set_shape(images.shape)
            images = slept
        return images + tf.random.uniform(tf.shape(images)) * 1e-3, labels

    found = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(100, seed=3).batch(32).map(work)
    return found.prefetch(prefetch) if prefetch else found


def fit(model: Any, data: Any, **more: Any) -> Any:
    model.fit(data, verbose=0, **{"epochs": 3, **more})
    return model


def slow_step_fast_input() -> Any:
    model = small_model(width=6000)
    return fit(model, batches(count=40).cache().prefetch(8))


def deterministic() -> Any:
    tf.config.experimental.enable_op_determinism()
    return fit(small_model(), batches(slow=0.02))


def with_validation() -> Any:
    return fit(small_model(), batches(slow=0.02), validation_data=batches(count=5))


def with_own_train_step() -> Any:
    class Own(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            x, y = data
            noise = tf.random.normal(tf.shape(x)) * 1e-2  # an op whose seed depends on the graph
            return super().train_step((x + noise, y))

    keras.utils.set_random_seed(1)
    model = Own([keras.Input((64,)), keras.layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return fit(model, batches(slow=0.02))


def failing_input() -> Any:
    model = small_model()
    bad = batches().map(lambda x, y: (tf.debugging.check_numerics(x / 0.0, "planted"), y))
    try:
        fit(model, batches().take(8).concatenate(bad))
    except tf.errors.InvalidArgumentError as error:
        assert "planted" in str(error)
        return model
    raise AssertionError("the planted error was lost")


def custom_loop(step_of: Callable[[Any, Any], Any], slow: float = 0.03) -> Any:
    model = small_model()
    step = step_of(model, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for _ in range(3):
        for x, y in batches(slow=slow):
            step(x, y)
    return model


def plain_step(model: Any, loss: Any) -> Callable[[Any, Any], None]:
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    return step


def epoch_in_graph() -> Any:
    model = small_model()
    step = plain_step(model, keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    @tf.function
    def epoch(data: Any) -> None:
        for x, y in data:
            step(x, y)

    for _ in range(3):
        epoch(batches(slow=0.002))
    return model


def train_on_batch() -> Any:
    model = small_model()
    for x, y in batches(slow=0.02):
        model.train_on_batch(x, y)
    return model


CASES: dict[str, Callable[[], Any]] = {
    "slow input": lambda: fit(small_model(), batches(slow=0.05)),
    "slow input, prefetched": lambda: fit(small_model(), batches(slow=0.01, prefetch=4)),
    "slow input, three steps a call": lambda: fit(small_model(3), batches(slow=0.01)),
    "slow input, some steps an epoch": lambda: fit(small_model(), batches(slow=0.01), steps_per_epoch=6),
    "slow step, fast input": slow_step_fast_input,
    "deterministic": deterministic,
    "validation": with_validation,
    "own train step": with_own_train_step,
    "run eagerly": lambda: fit(small_model(run_eagerly=True), batches(slow=0.01), epochs=1),
    "arrays": lambda: small_model().fit(np.ones((640, 64), "f4"), np.ones(640, "i4"), verbose=0).model,
    "failing input": failing_input,
    "eager loop": lambda: custom_loop(plain_step),
    "function loop": lambda: custom_loop(lambda model, loss: tf.function(plain_step(model, loss))),
    "epoch in the graph": epoch_in_graph,
    "train on batch": train_on_batch,
}


def train(case: str, stepclock: Any) -> dict[str, Any]:
    if stepclock is not None:
        stepclock.on_tensorflow(tf)
        stepclock.on_keras(keras)
    np.random.seed(5)
    model = CASES[case]()
    if stepclock is not None:
        stepclock.flush()
    state = [np.asarray(value) for value in [*model.weights, *model.optimizer.variables]]
    return {
        "digest": hashlib.sha256(b"".join(value.tobytes() for value in state)).hexdigest(),
        "steps": int(model.optimizer.iterations),
        "drawn after": [float(np.random.rand()), float(tf.random.uniform(()))],
    }


def in_a_child(case: str, trace: Path | None) -> dict[str, Any]:
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            if trace is not None:
                os.environ["ORCH_TRACE"] = str(trace)
                from orchestrator.runtime.steps import clock as stepclock
                from orchestrator.runtime.steps import pipeline

                pipeline._BASE = 0.2  # these trainings are short
            result = train(case, stepclock if trace is not None else None)
            os.write(writing, json.dumps(result).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        result = json.loads(pipe.read())
    os.wait()
    return result


if __name__ == "__main__":
    place = Path(sys.argv[1])
    sys.path.insert(0, sys.argv[2])
    found = {}
    for name in sys.argv[3:]:
        file = place / f"{name}.jsonl"
        found[name] = {"without": in_a_child(name, None), "with": in_a_child(name, file), "trace": str(file)}
    print(json.dumps(found))
