"""Runs under a Python with TensorFlow: trains small models in many styles, each with and without hooks.

`observe_variants.py ROOT OUT VARIANT…`: ROOT holds orch_runtime, recordings go to OUT/<variant>/observe.
Prints one JSON line for each variant: sha256 of the final weights without hooks, and with steps recorded in
full, then lightly, then no longer; or what went wrong. TensorFlow is imported once; every training is a
fork of that. The name of the Keras to be used may be in KERAS.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT, OUT = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

keras = importlib.import_module(os.environ.get("KERAS", "keras"))

L = keras.layers
STEPS, LIGHT = 3, 1


def arrays() -> tuple[Any, Any]:
    random = np.random.RandomState(0)
    return random.rand(160, 8, 8, 1).astype("float32"), random.randint(0, 10, 160)


def batches() -> Any:
    return tf.data.Dataset.from_tensor_slices(arrays()).shuffle(160).batch(32)


def small() -> Any:
    """Convolution, batch normalisation, dropout, and linear layers whose activation follows as a layer."""
    layers = [L.Conv2D(8, 3), L.Activation("relu"), L.BatchNormalization(), L.Conv2D(16, 3)]
    layers += [L.BatchNormalization(), L.LeakyReLU(), L.Flatten(), L.Dense(32), L.ReLU(), L.Dropout(0.3)]
    return keras.Sequential([keras.Input((8, 8, 1)), *layers, L.Dense(10), L.Softmax()])


def residual() -> Any:
    """Chains of additions and scalings, which the graph optimiser re-associates where it may."""
    given = keras.Input((8, 8, 1))
    start = hidden = L.Conv2D(16, 3, padding="same")(L.Normalization(mean=0.4, variance=0.3)(given))
    for _ in range(2):
        branch = L.Rescaling(1.7)(L.Conv2D(16, 3, padding="same", use_bias=False)(hidden))
        hidden = L.Add()([L.Add()([hidden, branch]), start])
    pooled = L.GlobalAveragePooling2D()(L.ReLU()(hidden))
    return keras.Model(given, L.Dense(10, activation="softmax")(L.Dense(24, activation="silu")(pooled)))


class Late(keras.Model):
    """Built by its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve, self.flatten, self.classify = L.Conv2D(8, 3), L.Flatten(), L.Dense(10, "softmax")

    def call(self, images: Any) -> Any:
        return self.classify(self.flatten(self.convolve(images)))


class Custom(keras.Model):
    """Its own train_step, with noise from tf.random that only the global seed fixes."""

    def train_step(self, data: Any) -> Any:
        images, labels = data
        images = images + tf.random.normal(tf.shape(images), stddev=0.01)
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=labels, y_pred=self(images, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))  # noqa: B905
        return {"loss": loss}


def fit(model: Any, optimizer: str = "adam", *, validate: bool = False, **options: Any) -> Any:
    model.compile(optimizer, "sparse_categorical_crossentropy", **options)
    model.fit(batches(), epochs=2, verbose=0, validation_data=batches() if validate else None)
    return model


def custom(**options: Any) -> Any:
    base = small()
    return fit(Custom(base.inputs, base.outputs), **options)


def loop(style: str, model: Any) -> Any:
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    loss_of = keras.losses.SparseCategoricalCrossentropy()

    def step(images: Any, labels: Any) -> Any:
        images = images + tf.random.uniform(tf.shape(images)) * 0.01
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
        return loss

    def epoch(data: Any) -> Any:
        total = 0.0
        for images, labels in data:
            total += step(images, labels)
        return total

    if style == "epoch":
        whole = tf.function(epoch)
        whole(batches()), whole(batches())
        return model
    one = tf.function(step) if style == "function" else step
    for images, labels in batches():
        one(images, labels)
    return model


def outer_tape(model: Any) -> Any:
    """Only the forward pass is a graph; the tape is outside of it."""
    optimizer, loss_of = keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy()
    forward = tf.function(lambda images: model(images, training=True))
    for images, labels in batches():
        with tf.GradientTape() as tape:
            loss = loss_of(labels, forward(images))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
    return model


def several(style: str) -> Any:
    """A generator and a discriminator, updated one after the other by losses of their own."""
    noise, real = keras.Sequential([keras.Input((4,)), L.Dense(16, "relu"), L.Dense(8)]), small_dense()
    optimizers = keras.optimizers.Adam(1e-3), keras.optimizers.Adam(1e-3)
    loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

    def step(given: Any, truth: Any) -> None:
        with tf.GradientTape() as tape:
            judged = real(tf.concat([noise(given, training=True), truth], 0), training=True)
            loss = loss_of(tf.concat([tf.zeros((16, 1)), tf.ones((16, 1))], 0), judged)
        gradients = tape.gradient(loss, real.trainable_variables)
        optimizers[0].apply_gradients(zip(gradients, real.trainable_variables))  # noqa: B905
        with tf.GradientTape() as tape:
            loss = loss_of(tf.ones((16, 1)), real(noise(given, training=True), training=True))
        gradients = tape.gradient(loss, noise.trainable_variables)
        optimizers[1].apply_gradients(zip(gradients, noise.trainable_variables))  # noqa: B905

    one = tf.function(step) if style == "function" else step
    for number in range(6):
        one(tf.random.normal((16, 4), seed=number), tf.random.normal((16, 8), seed=number) + 1.0)
    return keras.Sequential([noise, real])


def two_tapes() -> Any:
    """As DCGAN's tutorial: both losses from one forward pass, both models updated at its end."""
    noise = keras.Sequential([keras.Input((8,)), L.Dense(32, "relu"), L.Dense(32, "tanh"), L.Dense(16)])
    real = keras.Sequential([keras.Input((16,)), L.Dense(32, "relu"), L.Dense(32, "relu"), L.Dense(1)])
    optimizers = keras.optimizers.Adam(1e-3), keras.optimizers.Adam(1e-3)
    loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def step(given: Any, truth: Any) -> None:
        with tf.GradientTape() as making, tf.GradientTape() as judging:
            made = real(noise(given, training=True), training=True)
            taken = real(truth, training=True)
            losses = loss_of(tf.ones_like(made), made), loss_of(tf.ones_like(taken), taken)
            loss = losses[1] + loss_of(tf.zeros_like(made), made)
        upper = making.gradient(losses[0], noise.trainable_variables)
        lower = judging.gradient(loss, real.trainable_variables)
        optimizers[0].apply_gradients(zip(upper, noise.trainable_variables))  # noqa: B905
        optimizers[1].apply_gradients(zip(lower, real.trainable_variables))  # noqa: B905

    for number in range(6):
        step(tf.random.normal((16, 8), seed=number), tf.random.normal((16, 16), seed=number))
    return keras.Sequential([noise, real])


def unrolled(model: Any) -> Any:
    """Several steps written out in one graph, random numbers in each."""
    optimizer, loss_of = keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy()

    @tf.function
    def steps(images: Any, labels: Any) -> None:
        for part in range(4):
            given = images[8 * part : 8 * part + 8]
            given = given + tf.random.uniform(tf.shape(given)) * 0.01
            with tf.GradientTape() as tape:
                loss = loss_of(labels[8 * part : 8 * part + 8], model(given, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905

    for images, labels in batches().take(2):
        steps(images, labels)
    return model


def unshaped() -> Any:
    """Built within the first step, as it does not know its input before."""
    return keras.Sequential([L.Flatten(), L.Dense(32, "relu"), L.Dropout(0.3), L.Dense(10, "softmax")])


def small_dense() -> Any:
    return keras.Sequential([keras.Input((8,)), L.Dense(16, "relu"), L.Dense(1)])


def weighted() -> Any:
    """Arrays with sample weights, a metric, and a dictionary of inputs."""
    images, labels = arrays()
    flat = {"left": images.reshape(160, 64)[:, :32], "right": images.reshape(160, 64)[:, 32:]}
    given = {name: keras.Input((32,), name=name) for name in flat}
    joined = L.Dense(16, "relu")(L.Concatenate()([given["left"], given["right"]]))
    model = keras.Model(given, L.Dense(10, "softmax")(joined))
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    weights = np.linspace(0.5, 1.5, 160).astype("float32")
    model.fit(flat, labels, sample_weight=weights, batch_size=32, epochs=2, verbose=0)
    return model


def under(policy: str, train: Callable[[], Any]) -> Any:
    keras.mixed_precision.set_global_policy(policy)
    return train()


VARIANTS: dict[str, Callable[[], Any]] = {
    "fit": lambda: fit(small(), validate=True),
    "steps_per_execution": lambda: fit(small(), steps_per_execution=3),
    "train_step": custom,
    "train_step_per_execution": lambda: custom(steps_per_execution=2),
    "eager": lambda: loop("eager", small()),
    "function": lambda: loop("function", small()),
    "epoch": lambda: loop("epoch", small()),
    "outer_tape": lambda: outer_tape(small()),
    "residual": lambda: fit(residual()),
    "residual_sgd": lambda: fit(residual(), "sgd"),
    "late_fit": lambda: fit(Late()),
    "unshaped": lambda: fit(unshaped()),
    "late_function": lambda: loop("function", Late()),
    "bfloat16": lambda: under("mixed_bfloat16", lambda: fit(residual())),
    "float16": lambda: under("mixed_float16", lambda: fit(small())),
    "several_eager": lambda: several("eager"),
    "several_function": lambda: several("function"),
    "two_tapes": two_tapes,
    "unrolled": lambda: unrolled(small()),
    "weighted": weighted,
    "run_eagerly": lambda: fit(small(), run_eagerly=True),
    "compiled": lambda: fit(Late(), jit_compile=True),
}


def train(variant: str, *, observed: bool) -> dict[str, Any]:
    """Train in a fork; sha256 of the final weights, or the error."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            if observed:
                observe(OUT / variant)
            keras.utils.set_random_seed(3)
            weights = b"".join(weight.numpy().tobytes() for weight in VARIANTS[variant]().weights)
            answer = {"sha256": hashlib.sha256(weights).hexdigest()}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.wait()
    return dict(json.loads(text)) if text else {"error": "it died"}


def observe(run: Path) -> None:
    """What a counterfactual's process does after the fork."""
    from orch_runtime.observe import Settings, install_now

    install_now(Settings(run / "observe", STEPS, light=LIGHT))


if __name__ == "__main__":
    for name in sys.argv[3:]:
        ways = {"without": train(name, observed=False), "with": train(name, observed=True)}
        print(json.dumps({"variant": name, **ways}), flush=True)
