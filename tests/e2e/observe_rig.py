"""Runs under a Python with TensorFlow: trains one small project in many ways, each in a fork, observed.

`observe_rig.py ROOT PROJECT RUNS`: ROOT holds orch_runtime; PROJECT is where the scripts work; RUNS is a JSON
file, a list of {name, folder, style, seed, environment, arguments, …} (see `main`). TensorFlow is imported
once. Prints a line of JSON for each run: its name, and what went wrong, if anything.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, sys.argv[1])

import keras
import numpy as np
import tensorflow as tf

L = keras.layers
BATCH, STEPS = 16, 6


class Custom(keras.Model):
    """Its own train_step."""

    def train_step(self, data: Any) -> Any:
        given, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=labels, y_pred=self(given, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))  # noqa: B905
        return {"loss": loss, "twice": 2 * loss}


class Nudge(keras.callbacks.Callback):
    """Moves a weight by one unit in the last place after a step: what only fingerprints can see later."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.steps = after, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self.steps += 1
        if self.steps == self.after:
            kernel = self.model.layers[0].kernel
            kernel.assign(np.nextafter(kernel.numpy(), np.float32(9)))


def records(options: argparse.Namespace) -> tuple[Any, Any]:
    """Features read from files that the arguments name, labels made of them; noise from the seed."""
    scale = np.load(Path(options.data) / "scale.npy")
    table = np.loadtxt(Path(options.data) / "table.csv", delimiter=",").astype("float32")
    np.save("cache.npy", table * scale)
    noise = np.random.RandomState(options.noise).rand(BATCH * STEPS, table.shape[1]).astype("float32")
    features = np.tile(np.load("cache.npy"), (BATCH * STEPS // len(table), 1)).astype("float32") + noise
    if options.damage:
        features[BATCH * (options.damage - 1) + 3, 0] += 1e-3
    return features, (features.sum(axis=1) > features.sum(axis=1).mean()).astype("int64")


def train(options: argparse.Namespace) -> None:
    keras.utils.set_random_seed(options.seed)
    if options.style == "idle":
        return
    features, labels = records(options)
    layers = [keras.Input((features.shape[1],)), L.Dense(40, "relu"), L.Dropout(0.25), L.Dense(2, "softmax")]
    model = keras.Sequential(layers)
    data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH)
    if options.reverse:
        data = data.map(lambda given, truth: (tf.reverse(given, [0]), tf.reverse(truth, [0])))
    if options.style in ("fit", "train_step"):
        model = Custom(model.inputs, model.outputs) if options.style == "train_step" else model
        metrics = None if options.style == "train_step" else ["accuracy"]
        model.compile("adam", "sparse_categorical_crossentropy", metrics=metrics)
        model.fit(data, verbose=0, callbacks=[Nudge(options.nudge)] if options.nudge else [])
        return
    optimizer, loss_of = keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy()

    def step(given: Any, truth: Any) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(truth, model(given, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905

    one = step if options.style == "eager" else tf.function(step)
    if options.style == "arrays":
        for start in range(0, len(features), BATCH):
            one(tf.constant(features[start : start + BATCH]), tf.constant(labels[start : start + BATCH]))
    else:
        for given, truth in data:
            one(given, truth)


def child(run: dict[str, Any], project: Path) -> None:
    """One run, in a process that imported the frameworks before it knew anything of the run."""
    from orch_runtime.observe import Settings, install_now

    os.chdir(project)
    os.environ.update(run.get("environment", {}))
    time.tzset()
    paths = {name: Path(run[name]) for name in ("impose_batch", "impose_weights") if name in run}
    install_now(Settings(Path(run["folder"]) / "observe", 2, light=run.get("light", 0), **paths))
    sys.argv = ["train.py", *run["arguments"]]
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--style", default="fit")
    for name in ("seed", "noise", "damage", "nudge", "reverse"):
        parser.add_argument(f"--{name}", type=int, default=0)
    train(parser.parse_args())
    atexit._run_exitfuncs()


def main() -> None:
    for run in json.loads(Path(sys.argv[3]).read_text()):
        reading, writing = os.pipe()
        if os.fork() == 0:
            error = ""
            try:
                child(run, Path(sys.argv[2]))
            except BaseException:
                error = traceback.format_exc()
            os.write(writing, json.dumps({"name": run["name"], "error": error}).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            print(pipe.read().decode() or json.dumps({"name": run["name"], "error": "it died"}), flush=True)
        os.wait()


if __name__ == "__main__":
    main()
