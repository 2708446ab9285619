"""Trainings with one planted bottleneck each: `stalls_jobs.py CASE FOLDER`. Plain scripts, unaware of being
fed."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

FEATURES = 64
BATCH = 16


def train(data: Any, *, width: int = 2000, features: int = FEATURES) -> None:
    """A step of some milliseconds."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((features,)),
            keras.layers.Dense(width, "relu"),
            keras.layers.Dense(width // 4, "relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(data, epochs=1000, verbose=0)


def mapped(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of one number in Python as a map to (features, label)."""

    def call(number: Any, *_: Any) -> Any:
        features = tf.numpy_function(function, [number], tf.float32)
        features.set_shape([FEATURES])
        return features, tf.cast(tf.strings.to_hash_bucket_fast(tf.as_string(number), 10), tf.int32)

    return call


def row(number: Any) -> Any:
    return np.full(FEATURES, float(number) % 7, np.float32)


def waiting(seconds: float) -> Callable[[Any], Any]:
    def one(number: Any) -> Any:
        time.sleep(seconds)
        return row(number)

    return one


def plain() -> Any:
    x = np.random.RandomState(0).rand(4096, FEATURES).astype("f4")
    y = (x.sum(1) * 7 % 10).astype("i4")
    return x, y


# ---------------------------------------------------------------- cases


def none(_: Path) -> None:
    train(tf.data.Dataset.from_tensor_slices(plain()).shuffle(4096).batch(BATCH).prefetch(2))


def tiny_shuffle(_: Path) -> None:
    train(tf.data.Dataset.from_tensor_slices(plain()).shuffle(8).batch(BATCH).prefetch(2))


def no_prefetch(_: Path) -> None:
    options = tf.data.Options()
    options.autotune.enabled = False
    data = tf.data.Dataset.range(4096).batch(BATCH).map(lambda n: _slow_batch(n, 0.007))
    train(data.with_options(options), width=4000)


def _slow_batch(numbers: Any, seconds: float) -> Any:
    def one(given: Any) -> Any:
        time.sleep(seconds)
        return np.stack([row(number) for number in given])

    features = tf.numpy_function(one, [numbers], tf.float32)
    features.set_shape([None, FEATURES])
    return features, tf.cast(numbers % 10, tf.int32)


def serial_map(_: Path) -> None:
    """Each example is unpacked by a function that works with one core and gives the interpreter free."""
    packed = zlib.compress(np.random.RandomState(0).randint(0, 9, 400_000).astype("u1").tobytes(), 6)

    def one(number: Any) -> Any:
        return row(number) + np.frombuffer(zlib.decompress(packed)[:FEATURES], np.uint8)

    train(tf.data.Dataset.range(4096).map(mapped(one)).batch(BATCH).prefetch(2))


def serial_wait(_: Path) -> None:
    train(tf.data.Dataset.range(4096).map(mapped(waiting(0.003))).batch(BATCH).prefetch(2))


def generator(_: Path) -> None:
    def examples() -> Any:
        for number in range(4096):
            yield row(sum(index * number % 7 for index in range(20_000))), number % 10

    spec = (tf.TensorSpec([FEATURES], tf.float32), tf.TensorSpec([], tf.int32))
    train(tf.data.Dataset.from_generator(examples, output_signature=spec).batch(BATCH).prefetch(2))


def remote(folder: Path) -> None:
    """Each example comes from a server that takes three milliseconds to answer."""
    port = int((folder / "port").read_text())
    connections = threading.local()

    def one(number: Any) -> Any:
        if not hasattr(connections, "one"):
            connections.one = socket.create_connection(("127.0.0.1", port))
        connections.one.sendall(int(number).to_bytes(8, "little"))
        received = b""
        while len(received) < 8192:
            received += connections.one.recv(8192)
        return np.frombuffer(received, np.float32)[:FEATURES]

    train(tf.data.Dataset.range(4096).map(mapped(one)).batch(BATCH).prefetch(2))


def decode(folder: Path) -> None:
    """JPEG, decoded in parallel as it should be: there are not cores enough."""

    def image(number: Any) -> Any:
        pixels = tf.io.decode_jpeg(tf.io.read_file(names[number % len(names)]), channels=3)
        return tf.reshape(tf.cast(pixels[:4, :4], tf.float32)[..., :1], [16]), tf.cast(number % 10, tf.int32)

    names = tf.constant(list(_pictures(folder / "jpeg")))
    data = tf.data.Dataset.range(1024).map(image, num_parallel_calls=tf.data.AUTOTUNE)
    train(data.batch(BATCH).prefetch(2), features=16, width=1000)


def _pictures(place: Path) -> Any:
    place.mkdir(exist_ok=True)
    for number in range(32):
        picture = place / f"{number:02}.jpg"
        if not picture.exists():
            coarse = np.random.RandomState(number).randint(0, 255, (15, 20, 3)).astype("f4")
            smooth = tf.cast(tf.image.resize(coarse, (480, 640)), tf.uint8)
            picture.write_bytes(tf.io.encode_jpeg(smooth, quality=90).numpy())
        yield str(picture)


def few_cores(_: Path) -> None:
    """Everything is parallel and ahead, on one core."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])

    def heavy(number: Any) -> Any:
        noise = tf.random.stateless_normal([300, 300], [number, 1])
        return tf.reduce_sum(tf.linalg.matmul(noise, noise), 0)[:FEATURES], tf.cast(number % 10, tf.int32)

    data = tf.data.Dataset.range(4096).map(heavy, num_parallel_calls=tf.data.AUTOTUNE)
    train(data.batch(BATCH).prefetch(2), width=1000)


def many_threads(_: Path) -> None:
    """A pool of 128 threads that fight for the interpreter."""

    def one(number: Any) -> Any:
        total = 0
        for index in range(3000):
            total += index * int(number) % 7
        return row(total)

    options = tf.data.Options()
    options.threading.private_threadpool_size = 128
    data = tf.data.Dataset.range(4096).map(mapped(one), num_parallel_calls=128)
    train(data.batch(BATCH).prefetch(2).with_options(options), width=1000)


def slow_disk(folder: Path) -> None:
    """Records on a disk that gives 24 MB a second."""
    _join(folder, "blkio")
    files = sorted(str(path) for path in (folder / "slow" / "records").iterdir())
    options = tf.data.Options()
    data = tf.data.FixedLengthRecordDataset(files, 65536)
    data = data.map(lambda raw: _from_bytes(raw), num_parallel_calls=2).batch(BATCH).prefetch(2)
    train(data.with_options(options))


def _from_bytes(raw: Any) -> Any:
    pixels = tf.io.decode_raw(raw, tf.uint8)
    return tf.cast(pixels[:FEATURES], tf.float32), tf.cast(pixels[0] % 10, tf.int32)


def small_files(folder: Path) -> None:
    """One file an example, on a disk that answers 300 reads a second."""
    _join(folder, "blkio")
    names = sorted(str(path) for path in (folder / "slow" / "small").iterdir())
    data = tf.data.Dataset.from_tensor_slices(names).map(lambda name: _from_bytes(tf.io.read_file(name)))
    train(data.batch(BATCH).prefetch(2))


def memory(folder: Path) -> None:
    """The control group leaves room for a fraction of the files in the page cache."""
    group = _join(folder, "memory")
    data = tf.data.FixedLengthRecordDataset([str(folder / "big" / "records")], 1 << 19)
    data = data.map(_from_bytes).batch(BATCH).prefetch(2)

    class Tighten(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del logs
            if batch == 0 and group is not None:
                held = int((group / "memory.usage_in_bytes").read_text())
                (group / "memory.limit_in_bytes").write_text(str(held + (96 << 20)))

    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(1000, "relu"), keras.layers.Dense(10)]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(data, epochs=1000, verbose=0, callbacks=[Tighten()])


def _join(folder: Path, which: str) -> Path | None:
    """Enter a control group that the bench has made."""
    groups = json.loads((folder / "groups.json").read_text())
    group = Path(groups[which])
    (group / "cgroup.procs").write_text(str(os.getpid()))
    return group


CASES = {
    function.__name__: function
    for function in (
        none, tiny_shuffle, no_prefetch, serial_map, serial_wait, generator, remote, decode, few_cores,
        many_threads, slow_disk, small_files, memory,
    )
}  # fmt: skip


def first() -> None:
    """A session is scheduled as a group: it is the group that must come before others."""
    group = Path("/proc/self/autogroup")
    if group.exists() and os.getpriority(os.PRIO_PROCESS, 0) < 0:
        group.write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))


if __name__ == "__main__":
    first()
    CASES[sys.argv[1]](Path(sys.argv[2]))
