"""Runs under a Python with Keras: saves models of every kind, checks each, prints one JSON object by file."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT, FOLDER = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(ROOT))

import joblib  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from orch_runtime import modelcheck  # noqa: E402
from orch_runtime.modelcheck.compare import against  # noqa: E402
from sklearn.feature_extraction.text import CountVectorizer  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer, LabelEncoder, OneHotEncoder, StandardScaler  # noqa: E402

L = keras.layers
OWN = """
import keras

@keras.saving.register_keras_serializable(package="own")
class Doubled(keras.layers.Layer):
    def call(self, inputs):
        return inputs * 2
"""
ROWS = (np.arange(60.0).reshape(10, 6) * 7) % 11


class Mine(L.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + 1


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, (str(FOLDER / "was run"),)


def save_models() -> None:
    keras.utils.set_random_seed(1)
    layers = [keras.Input((8, 8, 1)), L.Conv2D(4, 3), L.Flatten(), L.Dense(3, activation="softmax")]
    model = keras.Sequential(layers)
    model.save(FOLDER / "good.keras")
    model.save(FOLDER / "good.h5")
    save_weights(model)
    with contextlib.redirect_stdout(sys.stderr):
        model.export(FOLDER / "exported")
    kernel, *rest = model.get_weights()
    model.set_weights([kernel + 0.01, *rest])
    model.save(FOLDER / "changed.keras")
    model.save_weights(FOLDER / "beside" / "changed.weights.h5")
    numbers = keras.Input((4,))
    keras.Model(numbers, L.Lambda(lambda x: x * 2)(numbers)).save(FOLDER / "lambda.keras")
    keras.Model(numbers, Mine()(numbers)).save(FOLDER / "custom.keras")
    words, facts = keras.Input((None,), dtype="int32", name="words"), keras.Input((5,), name="facts")
    both = L.Concatenate()([L.GlobalAveragePooling1D()(L.Embedding(10, 4)(words)), facts])
    outputs = {"one": L.Dense(2)(both), "two": L.Dense(1)(both)}
    keras.Model({"words": words, "facts": facts}, outputs).save(FOLDER / "several.keras")
    (FOLDER / "cut.h5").write_bytes((FOLDER / "good.h5").read_bytes()[:3000])


def save_odd() -> None:
    """Networks for large pictures, for short texts, for a length that is never given, and of half width."""
    pictures = keras.Input((None, None, 3))
    strided = L.Conv2D(2, 9, strides=4)(L.Conv2D(2, 5)(pictures))
    keras.Model(pictures, L.GlobalAveragePooling2D()(strided)).save(FOLDER / "open.keras")
    words = keras.Input((None,), dtype="int32")
    placed = L.Embedding(10, 4)(words) + L.Embedding(20, 4)(keras.ops.cumsum(keras.ops.ones_like(words), 1))
    keras.Model(words, L.GlobalAveragePooling1D()(placed)).save(FOLDER / "places.keras")
    lengths = keras.Input((None,))
    keras.Model(lengths, L.Reshape((7, 1))(lengths)).save(FOLDER / "never.keras")
    numbers = keras.Input((4,))
    keras.Model(numbers, L.Dense(2, dtype="mixed_bfloat16")(numbers)).save(FOLDER / "narrow.keras")


def save_weights(model: Any) -> None:
    """Weights alone, weights beside their configuration, and checkpoints whole and cut."""
    for name in ("alone", "beside", "points"):
        (FOLDER / name).mkdir()
    model.save_weights(FOLDER / "alone" / "good.weights.h5")
    model.save_weights(FOLDER / "beside" / "good.weights.h5")
    (FOLDER / "beside" / "network.json").write_text(model.to_json())
    for name in ("good", "cut", "damaged"):
        tf.train.Checkpoint(model=model).write(str(FOLDER / "points" / name))
    (FOLDER / "points" / "cut.data-00000-of-00001").unlink()
    damaged = FOLDER / "points" / "damaged.data-00000-of-00001"
    damaged.write_bytes(damaged.read_bytes()[:100])
    (FOLDER / "points" / "good.json").write_text(model.to_json())
    other = keras.Sequential([keras.Input((3,)), L.Dense(2)])
    other.save(FOLDER / "alone" / "other.keras")


def save_own() -> None:
    """A model with a class of a module of its own, which this process does not import."""
    (FOLDER / "code").mkdir()
    (FOLDER / "code" / "own_layers.py").write_text(OWN)
    child = os.fork()
    if child == 0:
        sys.path.insert(0, str(FOLDER / "code"))
        import own_layers  # type: ignore[import-not-found]

        numbers = keras.Input((4,))
        keras.Model(numbers, own_layers.Doubled()(numbers)).save(FOLDER / "own.keras")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def save_scalers() -> None:
    scaler = StandardScaler().fit(ROWS)
    put = {
        "scaler.pkl": scaler,
        "pipeline.pkl": make_pipeline(FunctionTransformer(np.log1p), StandardScaler()).fit(ROWS),
        "labels.pkl": LabelEncoder().fit(["cat", "dog", "eel"]),
        "colours.pkl": OneHotEncoder().fit([["red"], ["blue"]]),
        "words.pkl": CountVectorizer().fit(["one two", "two three"]),
        "statistics.pkl": {"mean": ROWS.mean(0), "names": ["a", "b"], "width": 6},
        "evil.pkl": Evil(),
    }
    for name, value in put.items():
        with (FOLDER / name).open("wb") as file:
            pickle.dump(value, file)
    with (FOLDER / "script.pkl").open("wb") as file:
        file.write(pickle.dumps(Mine)[:0] + b"c__main__\nScaler\n.")
    joblib.dump(scaler, FOLDER / "scaler.joblib", compress=3)
    joblib.dump({"table": np.arange(50_000.0)}, FOLDER / "table.joblib")
    joblib.dump(Evil(), FOLDER / "evil.joblib")
    np.savez(FOLDER / "means.npz", mean=ROWS.mean(0), std=ROWS.std(0))
    np.savez(FOLDER / "weights.npz", w=ROWS, b=np.array([np.nan, np.inf, 1.0]))
    np.save(FOLDER / "theta.npy", ROWS.astype("float32"))
    (FOLDER / "state").write_bytes((FOLDER / "theta.npy").read_bytes())
    (FOLDER / "net").write_bytes((FOLDER / "weights.npz").read_bytes())
    np.save(FOLDER / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (FOLDER / "vocab.txt").write_bytes(b"one\r\ntwo\r\n")
    (FOLDER / "classes.json").write_text('{"cat": 0, "dog": 1}')
    (FOLDER / "cut.pkl").write_bytes((FOLDER / "scaler.pkl").read_bytes()[:200])


def save_others() -> None:
    """What another fit, and another hand, would have left: compared with the above."""
    other = FOLDER / "other"
    other.mkdir()
    with (other / "scaler.pkl").open("wb") as file:
        pickle.dump(StandardScaler().fit(ROWS + np.eye(6)[2]), file)
    np.savez(other / "means.npz", mean=ROWS.mean(0), std=ROWS.std(0) + 1e-3)
    (other / "vocab.txt").write_bytes(b"one\ntwo\n")
    (other / "classes.json").write_text('{ "dog": 0, "cat": 1 }')


def check(names: list[str], *options: str) -> dict[str, Any]:
    """The result of each file, by its name; one process for all of them."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert modelcheck.main([*(str(FOLDER / name) for name in names), *options]) == 0
    value = json.loads(out.getvalue())
    results = value["results"] if len(names) > 1 else [value]
    return dict(zip(names, results, strict=True))


def expect(found: dict[str, Any], name: str, of: str) -> dict[str, Any]:
    """The result of a file, compared with the earlier result of the file `of`."""
    return {**found[name], **against(found[of], found[name])}


if __name__ == "__main__":
    for save in (save_models, save_odd, save_own, save_scalers, save_others):
        save()
    files = [
        *("good.keras", "lambda.keras", "custom.keras", "own.keras", "several.keras", "cut.h5"),
        *("open.keras", "places.keras", "never.keras", "narrow.keras"),
        *("alone/good.weights.h5", "beside/good.weights.h5", "beside/changed.weights.h5"),
        *("points/good", "points/cut", "points/damaged.index"),
        *("net", "state"),
        *sorted(
            p.name
            for p in FOLDER.iterdir()
            if p.suffix in (".pkl", ".joblib", ".npz", ".npy", ".txt", ".json")
        ),
    ]
    others = [f"other/{name}" for name in ("scaler.pkl", "means.npz", "vocab.txt", "classes.json")]
    found = check(files)
    second = check([*files, *("good.h5", "exported", "changed.keras"), *others])
    every = {
        **second,
        "first good.keras": found["good.keras"],
        "first weights": found["beside/good.weights.h5"],
    }
    again = {
        name: expect(every, name, "first good.keras")
        for name in ("good.keras", "good.h5", "exported", "changed.keras")
    }
    again["beside/changed.weights.h5"] = expect(every, "beside/changed.weights.h5", "first weights")
    for name in files:
        if found[name]["loaded"]:
            again[f"{name} itself"] = {**second[name], **against(found[name], second[name])}
    again.update({name: expect(every, name, name.partition("/")[2]) for name in others})
    own = check(["own.keras"], "--folder", str(FOLDER / "code"), "--import", "own_layers")
    (FOLDER / "expected.json").write_text(json.dumps(found["good.keras"]))
    print(json.dumps({"found": found, "again": again, "own": own}))
