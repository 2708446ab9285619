"""Keras as tf.keras: the new one, or that of old where TF_USE_LEGACY_KERAS says so."""

import os

import numpy as np
import tensorflow as tf

keras = tf.keras
keras.utils.set_random_seed(2)
values = np.load("values.npy")
labels = np.arange(len(values)) % 4
model = keras.Sequential(
    [
        keras.layers.Input((16,)),
        keras.layers.Dense(12, activation="relu", name="hidden"),
        keras.layers.BatchNormalization(name="norm"),
        keras.layers.Dense(4, activation="softmax", name="classes"),
    ]
)
rate = float(os.environ.get("RATE", "0.01"))
model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(values, labels, batch_size=24, epochs=2, shuffle=False, verbose=0)
