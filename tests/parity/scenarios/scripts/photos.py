"""Photographs as JPEG files, decoded and enlarged in a tf.data pipeline."""

import os

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(6)
if not os.path.exists("photos"):
    os.mkdir("photos")
    random = np.random.RandomState(2)
    for index in range(48):
        rough = tf.image.resize(random.randint(0, 255, (4, 4, 3)), (16, 16))
        tf.io.write_file(f"photos/{index:02}.jpg", tf.io.encode_jpeg(tf.cast(rough, tf.uint8)))


def photo(name):
    pixels = tf.io.decode_jpeg(tf.io.read_file(name), dct_method="INTEGER_ACCURATE")
    return tf.image.resize(pixels, (12, 12), method="bilinear") / 255.0


names = tf.data.Dataset.list_files("photos/*.jpg", seed=4)
labels = tf.data.Dataset.range(48).map(lambda index: index % 4)
data = tf.data.Dataset.zip((names.map(photo), labels)).batch(16)
layers = [keras.Input((12, 12, 3)), keras.layers.Conv2D(4, 3, name="conv"), keras.layers.Flatten()]
model = keras.Sequential([*layers, keras.layers.Dense(4, activation="softmax", name="classes")])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(data, epochs=2, verbose=0)
