"""What really saves checkpoints, in a loop: run by a Python with TensorFlow.

    checkpoint_writers.py LIVE KEPT ROUNDS

Reads requests, a line each: `write KIND` begins to save in LIVE/KIND until it is killed, and answers with its
pid; `check KIND FOLDER` loads FOLDER, a copy of LIVE/KIND, and answers with the number of its save, or with
what is wrong with it. Every number of a save is that of the save, so that a mixture of two shows.
TensorFlow is imported once; each writer and each check is a fork.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

SIZE = 160


def network() -> Any:
    layers = [keras.layers.Dense(SIZE), keras.layers.Dense(SIZE)]
    model = keras.Sequential([keras.Input((SIZE,)), *layers])
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    return model


def fill(model: Any, number: int) -> None:
    model.set_weights([np.full_like(each, number) for each in model.get_weights()])


def only(arrays: Any) -> int:
    """The number that all of the arrays hold. Raises ValueError where there are several."""
    found = {float(value) for each in arrays for value in np.unique(np.asarray(each))}
    if len(found) != 1:
        raise ValueError(f"a mixture of {sorted(found)}")
    return int(found.pop())


# ---------------------------------------------------------------- Keras


def backup(folder: Path, number: Any) -> None:
    callback = keras.callbacks.BackupAndRestore(str(folder), double_checkpoint=True)
    model = network()
    callback.set_model(model)
    for count in number:
        fill(model, count)
        callback.on_epoch_end(count - 1)


def check_backup(folder: Path) -> int:
    model = network()
    model.load_weights(folder / "latest.weights.h5")
    found, told = only(model.get_weights()), json.loads((folder / "training_metadata.json").read_text())
    if told["epoch"] != found:
        raise ValueError(f"weights of {found} with the metadata of {told['epoch']}")
    return found


def by_callback(name: str, **more: Any) -> Callable[[Path, Any], None]:
    def write(folder: Path, number: Any) -> None:
        callback = keras.callbacks.ModelCheckpoint(str(folder / name), **more)
        model = network()
        callback.set_model(model)
        for count in number:
            fill(model, count)
            callback.on_epoch_end(count - 1, {})

    return write


def check_model(name: str) -> Callable[[Path], int]:
    return lambda folder: only(keras.models.load_model(folder / name, compile=False).get_weights())


def check_weights(folder: Path) -> int:
    model = network()
    model.load_weights(folder / "w.weights.h5")
    return only(model.get_weights())


# ---------------------------------------------------------------- TensorFlow


def state() -> Any:
    return tf.train.Checkpoint(
        a=tf.Variable(tf.zeros((SIZE, SIZE), tf.float64)), b=tf.Variable(tf.zeros((SIZE,), tf.float64))
    )


def set_state(saved: Any, count: int) -> None:
    for each in (saved.a, saved.b):
        each.assign(tf.fill(each.shape, tf.cast(count, tf.float64)))


def manager(folder: Path, number: Any) -> None:
    saved = state()
    keeping = tf.train.CheckpointManager(saved, str(folder), max_to_keep=2)
    for count in number:
        set_state(saved, count)
        keeping.save()


def in_place(folder: Path, number: Any) -> None:
    saved = state()
    for count in number:
        set_state(saved, count)
        saved.write(str(folder / "only"))


def check_state(folder: Path) -> int:
    saved, newest = state(), tf.train.latest_checkpoint(str(folder))
    saved.read(newest or str(folder / "only")).assert_existing_objects_matched()
    return only([saved.a, saved.b])


def saved_model(folder: Path, number: Any) -> None:
    saved = tf.Module()
    saved.a, saved.b = tf.Variable(tf.zeros((SIZE, SIZE))), tf.Variable(tf.zeros((SIZE,)))
    for count in number:
        saved.a.assign(tf.fill(saved.a.shape, float(count)))
        saved.b.assign(tf.fill(saved.b.shape, float(count)))
        saved.made = tf.constant(float(count))
        tf.saved_model.save(saved, str(folder))


def check_saved_model(folder: Path) -> int:
    saved = tf.saved_model.load(str(folder))
    return only([saved.a, saved.b])


# ---------------------------------------------------------------- others


def plain(folder: Path, number: Any) -> None:
    for count in number:
        (folder / "state.part").write_bytes(bytes([count % 251]) * (1 << 18))
        (folder / "state.part").rename(folder / "state")


def check_plain(folder: Path) -> int:
    return only([np.frombuffer((folder / "state").read_bytes(), np.uint8)])


def arrays(folder: Path, number: Any) -> None:
    for count in number:
        np.savez(folder / "state.npz", a=np.full((SIZE, SIZE), count), b=np.full(SIZE, count))


def check_arrays(folder: Path) -> int:
    with np.load(folder / "state.npz") as found:
        return only([found["a"], found["b"]])


def pickled(folder: Path, number: Any) -> None:
    for count in number:
        with open(folder / "state.pkl", "wb", buffering=4096) as file:
            pickle.dump([np.full((SIZE, SIZE), count), np.full(SIZE, count)], file)


def check_pickled(folder: Path) -> int:
    return only(pickle.loads((folder / "state.pkl").read_bytes()))


def marked(folder: Path, number: Any) -> None:
    """A folder a save, which has its name when it is whole; the older ones are removed."""
    for count in number:
        part = folder / f"step-{count}.tmp"
        part.mkdir()
        np.save(part / "a.npy", np.full((SIZE, SIZE), count))
        np.save(part / "b.npy", np.full(SIZE, count))
        part.rename(folder / f"step-{count}")
        for old in folder.glob("step-*"):
            if old.name != f"step-{count}":
                for file in old.iterdir():
                    file.unlink()
                old.rmdir()


def check_marked(folder: Path) -> int:
    newest = max((each for each in folder.iterdir() if not each.name.endswith(".tmp")), key=lambda e: e.name)
    return only([np.load(newest / "a.npy"), np.load(newest / "b.npy")])


KINDS: dict[str, tuple[Callable[[Path, Any], None], Callable[[Path], int]]] = {
    "backup": (backup, check_backup),
    "keras": (by_callback("m.keras"), check_model("m.keras")),
    "weights": (by_callback("w.weights.h5", save_weights_only=True), check_weights),
    "h5": (by_callback("m.h5"), check_model("m.h5")),
    "manager": (manager, check_state),
    "in_place": (in_place, check_state),
    "saved_model": (saved_model, check_saved_model),
    "plain": (plain, check_plain),
    "arrays": (arrays, check_arrays),
    "pickled": (pickled, check_pickled),
    "marked": (marked, check_marked),
}


def numbers(begin: int, pause: float) -> Any:
    import time

    while True:
        begin += 1
        yield begin
        time.sleep(pause)


def forked(act: Callable[[], Any]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return pid


def answer(of: Callable[[], int], into: int) -> None:
    try:
        said = {"number": of()}
    except BaseException as error:
        said = {"wrong": f"{type(error).__name__}: {error}"[:400]}
    os.write(into, json.dumps(said).encode())


def main() -> None:
    for line in sys.stdin:
        verb, kind, *rest = line.split()
        write, check = KINDS[kind]
        if verb == "write":
            folder, begin, pause = Path(rest[0]), int(rest[1]), float(rest[2])
            folder.mkdir(parents=True, exist_ok=True)
            print(json.dumps(forked(lambda: write(folder, numbers(begin, pause)))), flush=True)  # noqa: B023
        elif verb == "end":
            os.kill(int(rest[0]), 9)
            os.waitpid(int(rest[0]), 0)
            print("null", flush=True)
        else:
            reading, writing = os.pipe()
            os.waitpid(forked(lambda: answer(lambda: check(Path(rest[0])), writing)), 0)  # noqa: B023
            os.close(writing)
            print(os.read(reading, 1 << 16).decode() or '{"wrong": "it died"}', flush=True)
            os.close(reading)


main()
