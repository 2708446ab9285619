"""Train a small convolutional network on the digits that prepare.py wrote.

Two runs on one machine end with the same weights, bit for bit: the files are sorted, everything
random is seeded, records are interleaved by fixed rules and TensorFlow's operations are deterministic.
"""

import argparse
import json
from pathlib import Path

import keras
import tensorflow as tf

SEED = 20
FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """One serialized record -> float32 image [8, 8, 1] in 0..1, int64 label []."""
    fields = tf.io.parse_single_example(record, FEATURES)
    pixels = tf.reshape(tf.io.decode_raw(fields["image"], tf.uint8), [8, 8, 1])
    return tf.cast(pixels, tf.float32) / 16.0, fields["label"]


def dataset(folder: Path, split: str, batch_size: int, *, shuffle: bool) -> tf.data.Dataset:
    """Batches of (images, labels) from every shard of `split`."""
    shards = sorted(str(path) for path in folder.glob(f"{split}-*.tfrecord"))
    if not shards:
        raise SystemExit(f"No {split}-*.tfrecord in {folder}. Run first: python prepare.py --output {folder}")
    count = tf.data.TFRecordDataset(shards).reduce(tf.constant(0, tf.int64), lambda total, _: total + 1)
    records = tf.data.Dataset.from_tensor_slices(shards).interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=2, deterministic=True
    )
    records = records.apply(tf.data.experimental.assert_cardinality(count))  # Keras then knows an epoch's end
    if shuffle:
        records = records.shuffle(2048, seed=SEED)
    return records.map(decode, num_parallel_calls=2, deterministic=True).batch(batch_size).prefetch(2)


def network() -> keras.Model:
    """Images [batch, 8, 8, 1] -> logits [batch, 10]; 105,766 weights."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu", name="conv1"),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu", name="conv2"),
            keras.layers.MaxPooling2D(name="pool"),
            keras.layers.Flatten(name="flat"),
            keras.layers.Dropout(0.25, seed=SEED, name="drop"),
            keras.layers.Dense(84, activation="relu", name="dense"),
            keras.layers.Dense(10, name="digit"),
        ],
        name="digits",
    )
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    return model


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder that prepare.py wrote")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder for the results")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()

    train = dataset(options.data, "train", options.batch_size, shuffle=True)
    test = dataset(options.data, "test", options.batch_size, shuffle=False)
    model = network()
    model.fit(train, epochs=options.epochs, shuffle=False, verbose=2)  # `train` shuffles
    scores = model.evaluate(test, verbose=2, return_dict=True)

    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "model.keras")
    metrics = {"accuracy": scores["accuracy"], "loss": scores["loss"], "epochs": options.epochs}
    (options.output / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    print(f"Test accuracy {scores['accuracy']:.4f}, loss {scores['loss']:.4f}")


if __name__ == "__main__":
    main()
