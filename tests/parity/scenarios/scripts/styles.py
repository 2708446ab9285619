"""A small network, trained in the style that the argument names."""

import json
import sys

import keras
import numpy as np
import tensorflow as tf
from parts import between, prepared

keras.utils.set_random_seed(5)
with open("config.json") as file:
    config = json.load(file)
values = prepared(np.load("values.npy"))
labels = np.arange(len(values)) % 4
data = tf.data.Dataset.from_tensor_slices((values, labels)).batch(24)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Net(keras.Model):
    """Built by its first call."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(12, activation="relu", name="hidden")
        self.drop = keras.layers.Dropout(0.2, name="drop")
        self.classes = keras.layers.Dense(4, name="classes")

    def call(self, given, training=False):
        return self.classes(self.drop(between(self.hidden(given)), training=training))


class OwnStep(Net):
    def train_step(self, batch):
        given, wanted = batch
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=wanted, y_pred=self(given, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def adam():
    return keras.optimizers.Adam(config["rate"])


def fit(model=None, **options):
    model = model or Net()
    model.compile(adam(), loss_of, **options)
    model.fit(data, epochs=2, verbose=0)


def own_step():
    fit(OwnStep())


def several_a_call():
    fit(steps_per_execution=2)


def by_batch():
    model = Net()
    model.compile(adam(), loss_of, metrics=["accuracy"])
    for given, wanted in data:
        model.train_on_batch(given, wanted)


def stepping(model, optimizer):
    """One step by tape."""

    def step(given, wanted):
        with tf.GradientTape() as tape:
            loss = loss_of(wanted, model(given, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return step


def eager():
    step = stepping(Net(), adam())
    for given, wanted in data:
        step(given, wanted)


def epoch():
    model, optimizer = Net(), adam()
    model(values[:1])
    optimizer.build(model.trainable_variables)
    step = stepping(model, optimizer)

    @tf.function
    def whole():
        for given, wanted in data:
            step(given, wanted)

    whole()
    whole()


def pair():
    """A forger and a judge, in turns."""
    forger = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, name="forge")])
    judge = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1, name="judge")])
    binary = keras.losses.BinaryCrossentropy(from_logits=True)
    first, second = adam(), adam()
    noise = tf.random.Generator.from_seed(9)

    @tf.function
    def step(real):
        given = noise.normal((24, 8))
        with tf.GradientTape() as tape:
            told = judge(tf.concat([real, forger(given)], 0))
            loss = binary(tf.concat([tf.ones((24, 1)), tf.zeros((24, 1))], 0), told)
        first.apply_gradients(zip(tape.gradient(loss, judge.trainable_variables), judge.trainable_variables))
        with tf.GradientTape() as tape:
            loss = binary(tf.ones((24, 1)), judge(forger(given)))
        second.apply_gradients(
            zip(tape.gradient(loss, forger.trainable_variables), forger.trainable_variables)
        )

    for given, _ in data:
        step(given)


def two_inputs():
    left, right = keras.Input((16,), name="left"), keras.Input((1,), name="right")
    hidden = keras.layers.Dense(8, activation="relu", name="hidden")(left)
    joined = keras.layers.Concatenate(name="joined")([hidden, right])
    model = keras.Model({"left": left, "right": right}, keras.layers.Dense(4, name="classes")(joined))
    model.compile(adam(), loss_of)
    side = np.linspace(0, 1, len(values), dtype="float32")[:, None]
    model.fit({"left": values, "right": side}, labels, batch_size=24, shuffle=False, verbose=0)


globals()[sys.argv[1]]()
