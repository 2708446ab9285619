"""Short sentences, looked up in a vocabulary; every file is read by TensorFlow, none by Python."""

import json

import keras
import tensorflow as tf

keras.utils.set_random_seed(3)
with tf.io.gfile.GFile("config.json") as file:
    config = json.load(file)
lookup = keras.layers.StringLookup(vocabulary="vocabulary.txt")
files = tf.data.Dataset.list_files("texts/*.txt", shuffle=False)
lines = files.interleave(tf.data.TextLineDataset, cycle_length=2)


def example(line):
    words = tf.ensure_shape(tf.strings.split(line), (4,))
    return lookup(words), tf.strings.length(line) % 3


data = lines.map(example).batch(config["batch"])
layers = [keras.Input((4,)), keras.layers.Embedding(16, 8, name="words"), keras.layers.Flatten()]
model = keras.Sequential([*layers, keras.layers.Dense(3, activation="softmax", name="classes")])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(data, verbose=0)
