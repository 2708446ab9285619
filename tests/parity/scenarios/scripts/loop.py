"""A training loop of its own: a graph function, clipped gradients, a falling learning rate."""

import json

import keras
import numpy as np
import tensorflow as tf

with open("config.json") as file:
    config = json.load(file)
keras.utils.set_random_seed(config["seed"])
start = np.load("start.npy")
random = np.random.RandomState(1)
values = random.rand(96, 16).astype("float32")
labels = random.randint(0, 4, 96)
weights = np.ones(96, "float32")
data = tf.data.Dataset.from_tensor_slices((values, labels, weights)).batch(config["batch"])

hidden = keras.layers.Dense(16, activation="relu", name="hidden")
drop = keras.layers.Dropout(0.25, seed=3, name="drop")
classes = keras.layers.Dense(4, name="classes")
model = keras.Sequential([keras.Input((16,)), hidden, drop, classes])
hidden.kernel.assign(start)
rate = keras.optimizers.schedules.ExponentialDecay(0.01, decay_steps=1, decay_rate=0.9)
optimizer = keras.optimizers.Adam(rate, epsilon=1e-7)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def step(given, wanted, weight):
    with tf.GradientTape() as tape:
        loss = loss_of(wanted, model(given, training=True), sample_weight=weight)
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients, _ = tf.clip_by_global_norm(gradients, config["clip"])
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for _ in range(config["epochs"]):
    for batch in data:
        step(*batch)
model.save("loop.keras")
