"""A small convolutional network on shards of images."""

import argparse
import glob

import keras
import numpy as np
import tensorflow as tf
from prepare import images_of

SIDE = 12

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data")
parser.add_argument("--seed", type=int, default=7)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--rate", type=float, default=0.001)
parser.add_argument("--output", default="model.keras")
options = parser.parse_args()
keras.utils.set_random_seed(options.seed)


def load(path):
    raw = np.fromfile(path, np.uint8).reshape(-1, SIDE * SIDE + 1)
    return images_of(raw[:, 1:].reshape(-1, SIDE, SIDE, 1)), raw[:, 0].astype("int64")


shards = [load(path) for path in sorted(glob.glob(f"{options.data}/*.bin"))]
images, labels = (np.concatenate(part) for part in zip(*shards))
data = tf.data.Dataset.from_tensor_slices((images, labels))
data = data.shuffle(96, seed=3).batch(options.batch)

model = keras.Sequential(
    [
        keras.Input((SIDE, SIDE, 1)),
        keras.layers.Conv2D(8, 3, activation="relu", name="conv1"),
        keras.layers.BatchNormalization(name="norm"),
        keras.layers.Conv2D(16, 3, activation="relu", name="conv2"),
        keras.layers.Flatten(name="flat"),
        keras.layers.Dropout(0.2, name="drop"),
        keras.layers.Dense(10, activation="softmax", name="classes"),
    ]
)
optimizer = keras.optimizers.Adam(options.rate)
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(data, epochs=options.epochs, verbose=0)
model.save(options.output)
