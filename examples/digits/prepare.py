"""Write scikit-learn's bundled digits (1,797 real 8x8 images) as TFRecord shards for train.py.

The same files come out, byte for byte, every time and everywhere: the split and the order hang on
nothing but each image's number.
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TEST_IMAGES = 360
SHARDS = {"train": 8, "test": 2}


def order(count: int) -> list[int]:
    """A fixed shuffle of range(count), free of any random number generator."""
    return sorted(range(count), key=lambda i: hashlib.sha256(str(i).encode()).digest())


def example(image: np.ndarray, label: int) -> bytes:
    """One record: `image` is 64 bytes (8 rows of 8 pixels, each 0..16), `label` is 0..9."""
    pixels = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.astype(np.uint8).tobytes()]))
    digit = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)]))
    features = tf.train.Features(feature={"image": pixels, "label": digit})
    return tf.train.Example(features=features).SerializeToString(deterministic=True)


def write_shards(folder: Path, split: str, records: list[bytes]) -> None:
    """Deal `records` over the shards of `split`, one after the other."""
    shards = SHARDS[split]
    for shard in range(shards):
        path = folder / f"{split}-{shard:05d}-of-{shards:05d}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records[shard::shards]:
                writer.write(record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("data"), help="folder for the shards")
    folder = parser.parse_args().output

    digits = load_digits()
    records = [example(digits.images[i], digits.target[i]) for i in order(len(digits.target))]
    folder.mkdir(parents=True, exist_ok=True)
    write_shards(folder, "test", records[:TEST_IMAGES])
    write_shards(folder, "train", records[TEST_IMAGES:])
    print(f"{len(records) - TEST_IMAGES} train and {TEST_IMAGES} test images in {folder}")


if __name__ == "__main__":
    main()
