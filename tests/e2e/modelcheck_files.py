"""Runs under a Python with Keras: saves models of every kind, checks each, prints one JSON object by file."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT, FOLDER = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(ROOT))

import keras  # noqa: E402
from orch_runtime import modelcheck  # noqa: E402

L = keras.layers


class Mine(L.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + 1


def save() -> None:
    keras.utils.set_random_seed(1)
    layers = [keras.Input((8, 8, 1)), L.Conv2D(4, 3), L.Flatten(), L.Dense(3, activation="softmax")]
    model = keras.Sequential(layers)
    model.save(FOLDER / "good.keras")
    model.save(FOLDER / "good.h5")
    model.save_weights(FOLDER / "good.weights.h5")
    with contextlib.redirect_stdout(sys.stderr):
        model.export(FOLDER / "exported")
    kernel, *rest = model.get_weights()
    model.set_weights([kernel + 0.01, *rest])
    model.save(FOLDER / "changed.keras")
    numbers = keras.Input((4,))
    keras.Model(numbers, L.Lambda(lambda x: x * 2)(numbers)).save(FOLDER / "lambda.keras")
    keras.Model(numbers, Mine()(numbers)).save(FOLDER / "custom.keras")
    words, facts = keras.Input((None,), dtype="int32", name="words"), keras.Input((5,), name="facts")
    both = L.Concatenate()([L.GlobalAveragePooling1D()(L.Embedding(10, 4)(words)), facts])
    outputs = {"one": L.Dense(2)(both), "two": L.Dense(1)(both)}
    keras.Model({"words": words, "facts": facts}, outputs).save(FOLDER / "several.keras")
    (FOLDER / "cut.h5").write_bytes((FOLDER / "good.h5").read_bytes()[:3000])


def check(name: str, *options: str) -> Any:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert modelcheck.main([str(FOLDER / name), *options]) == 0
    return json.loads(out.getvalue())


if __name__ == "__main__":
    save()
    names = ["good.keras", "lambda.keras", "custom.keras", "several.keras", "cut.h5", "good.weights.h5"]
    found = {name: check(name) for name in names}
    expected = FOLDER / "expected.json"
    expected.write_text(json.dumps(found["good.keras"]))
    for name in ("good.keras", "good.h5", "exported", "changed.keras"):
        found[f"{name} again"] = check(name, "--expect", str(expected))
    found["lambda.keras unsafe"] = check("lambda.keras", "--unsafe")
    print(json.dumps(found))
