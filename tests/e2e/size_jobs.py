"""Trainings of every kind, in one process that imported TensorFlow once: each is sized in a child of its own.

python size_jobs.py RUNTIME FOLDER    writes FOLDER/<job>.json for each
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def data(batch: int = 32, **more: Any) -> Any:
    import numpy as np
    import tensorflow as tf

    random = np.random.RandomState(0)
    arrays = random.rand(256, 64).astype("float32"), random.randint(0, 10, 256)
    return tf.data.Dataset.from_tensor_slices(arrays).batch(batch, **more)


def model() -> Any:
    import keras

    made = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256), keras.layers.Dense(10)])
    made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(True))
    return made


def fit() -> None:
    model().fit(data(), epochs=2, verbose=0)


def arrays_in_fit() -> None:
    import numpy as np

    model().fit(np.ones((64, 64), "float32"), np.zeros(64), batch_size=16, verbose=0)


def several_steps_a_call() -> None:
    made = model()
    made.compile("adam", "mse", steps_per_execution=4)
    made.fit(data(16).map(lambda x, _: (x, x[:, :10])), verbose=0)


def train_on_batch() -> None:
    made = model()
    for x, y in data():
        made.train_on_batch(x, y)


def loop(wrap: Callable[[Any], Any]) -> None:
    import keras
    import tensorflow as tf

    made, optimizer = model(), keras.optimizers.Adam()

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            scores = made(x, training=True)
            loss = keras.losses.sparse_categorical_crossentropy(y, scores, from_logits=True)
        weights = made.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    step = wrap(step)
    for _ in range(2):
        for x, y in data():
            step(x, y)


def function() -> None:
    import tensorflow as tf

    loop(tf.function)


def eager() -> None:
    loop(lambda step: step)


def dataset_in_a_function() -> None:
    import tensorflow as tf

    weights = tf.Variable(tf.random.normal([64, 10]))

    def epoch(batches: Any) -> None:
        for x, _ in batches:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.matmul(x, weights) ** 2)
            weights.assign_sub(0.1 * tape.gradient(loss, weights))

    call = tf.function(epoch)
    for _ in range(2):
        call(data(32, drop_remainder=True))


def batch_of_fixed_size() -> None:
    import tensorflow as tf

    takes = [tf.TensorSpec([32, 64]), tf.TensorSpec([32], tf.int64)]
    loop(lambda step: tf.function(step, input_signature=takes))


def batch_by_itself() -> None:
    import tensorflow as tf

    weights = tf.Variable(tf.ones([64, 10]))

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(tf.random.normal([8, 64]), weights))
        weights.assign_sub(0.1 * tape.gradient(loss, weights))

    call = tf.function(step)
    for _ in range(3):
        call()


def no_training() -> None:
    model().predict(data(), verbose=0)


JOBS = (fit, arrays_in_fit, several_steps_a_call, train_on_batch, function, eager, dataset_in_a_function,
        batch_of_fixed_size, batch_by_itself, no_training)  # fmt: skip


def main(runtime: str, folder: str) -> None:
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
    sys.path.insert(0, runtime)
    import keras
    import tensorflow as tf

    sizing = importlib.import_module("orch_runtime.sizing.sizing")
    wish = importlib.import_module("orch_runtime.sizing.course").Options
    for job in JOBS:
        if os.fork() == 0:
            try:
                found = sizing.Sizing(wish(str(Path(folder) / f"{job.__name__}.json"), steps=3))
                found.on_tensorflow(tf)
                found.on_keras(keras)
                job()
            finally:
                os._exit(0)
        os.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
