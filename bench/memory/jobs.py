"""Six small trainings of different kinds, as somebody would write them."""

from __future__ import annotations

from typing import Any

SHAPES = {
    "dense": (256,),
    "cnn": (32, 32, 3),
    "resnet": (32, 32, 3),
    "lstm": (40, 16),
    "transformer": (64, 32),
    "embedding": (120,),
}
OPTIMIZERS = ("adam", "sgd")


def train(kind: str, optimizer: str, batch: int, steps: int, **fit: Any) -> None:
    """Build, compile and fit, on one batch that is repeated: what a pipeline holds lies not on a GPU."""
    import keras
    import tensorflow as tf

    shape = (batch, *SHAPES[kind])
    words = kind == "embedding"
    x = tf.random.uniform(shape, 0, 5000, tf.int32) if words else tf.random.normal(shape)
    data = tf.data.Dataset.from_tensors((x, tf.range(batch) % 10)).repeat(steps)
    del x
    model = build(kind)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(True), metrics=["accuracy"])
    model.fit(data, epochs=1, verbose=0, shuffle=False, **fit)


def build(kind: str) -> Any:
    import keras

    inputs = keras.Input(SHAPES[kind], dtype="int32" if kind == "embedding" else "float32")
    features = {
        "dense": _dense,
        "cnn": _cnn,
        "resnet": _resnet,
        "lstm": _lstm,
        "transformer": _transformer,
        "embedding": _embedding,
    }[kind](keras.layers, inputs)
    return keras.Model(inputs, keras.layers.Dense(10)(features))


def _dense(layers: Any, x: Any) -> Any:
    for _ in range(4):
        x = layers.Dense(512, activation="relu")(x)
    return x


def _cnn(layers: Any, x: Any) -> Any:
    for width in (32, 64):
        x = layers.MaxPool2D()(layers.Conv2D(width, 3, padding="same", activation="relu")(x))
    return layers.Dense(128, activation="relu")(layers.Dropout(0.3)(layers.Flatten()(x)))


def _resnet(layers: Any, x: Any) -> Any:
    x = layers.Conv2D(16, 3, padding="same")(x)
    for width in (16, 16, 32, 32, 64, 64):
        strides = 1 if x.shape[-1] == width else 2
        short = x if strides == 1 else layers.Conv2D(width, 1, strides=2)(x)
        x = layers.Conv2D(width, 3, strides=strides, padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same")(x))
        x = layers.ReLU()(layers.Add()([x, short]))
    return layers.GlobalAveragePooling2D()(x)


def _lstm(layers: Any, x: Any) -> Any:
    return layers.LSTM(64)(layers.LSTM(64, return_sequences=True)(x))


def _transformer(layers: Any, x: Any) -> Any:
    x = layers.Dense(64)(x)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(256, activation="gelu")(x)))
    return layers.GlobalAveragePooling1D()(x)


def _embedding(layers: Any, x: Any) -> Any:
    x = layers.GlobalMaxPooling1D()(layers.Conv1D(64, 5, activation="relu")(layers.Embedding(5000, 64)(x)))
    return layers.Dense(64, activation="relu")(x)
