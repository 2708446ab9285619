"""Runs under a Python with Keras: writes hostile models, then checks them with nothing but the first wall.

argv: the folder that holds orch_runtime, a folder to write to, a file that nobody may read. Prints one JSON
object: name -> answer, and what Python's audit events saw meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT, FOLDER, CANARY = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
sys.path.insert(0, str(ROOT))

import h5py  # noqa: E402
import joblib  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from orch_runtime.modelcheck import inside  # noqa: E402
from sklearn.feature_extraction.text import CountVectorizer  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer, StandardScaler  # noqa: E402

L = keras.layers
MARK = FOLDER / "was run"
TOUCH = f"touch '{MARK}'"
ROWS = np.arange(12.0).reshape(4, 3)


class Calls:
    """Pickles as a call of `function`, whatever it is."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + len(raw).to_bytes(4, "little") + raw


def call(module: str, name: str, *arguments: str) -> bytes:
    """A pickle of protocol 4 that calls what lies at an attribute path."""
    many = b"".join(text(each) for each in arguments)
    return b"\x80\x04" + text(module) + text(name) + b"\x93(" + many + b"tR."


def pickles() -> None:
    scaler = StandardScaler().fit(ROWS)
    shadowed, counter = StandardScaler().fit(ROWS), CountVectorizer(input="filename")
    shadowed.__dict__["transform"] = np.log1p
    counter.vocabulary_ = {CANARY: 0}
    put: dict[str, bytes] = {
        "system.pkl": pickle.dumps(Calls(os.system, TOUCH)),
        "old-system.pkl": pickle.dumps(Calls(os.system, TOUCH), protocol=0),
        "dotted.pkl": call("sklearn.preprocessing._data", "np.os.system", TOUCH),
        "dotted-allowed.pkl": call("numpy", "ndarray.tofile", "x"),
        "getattr.pkl": pickle.dumps(Calls(getattr, np.ndarray, "tofile")),
        "eval.pkl": call("pandas", "eval", f"@__import__('os').system({TOUCH!r})"),
        "numpy-load.pkl": call("numpy", "load", CANARY),
        "codec.pkl": call("_codecs", "encode", "x", "antigravity"),
        "partial.pkl": pickle.dumps(__import__("functools").partial(os.system, TOUCH)),
        "pipeline.pkl": pickle.dumps(make_pipeline(FunctionTransformer(os.system), scaler)),
        "shadowed.pkl": pickle.dumps(shadowed),
        "filename.pkl": pickle.dumps(counter),
        "extension.pkl": b"\x80\x02\x82\x01.",
        "flags.pkl": forged_flags(),
        "huge.pkl": pickle.dumps(np.zeros(3)).replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85"),
    }
    for name, raw in put.items():
        (FOLDER / name).write_bytes(raw)
    joblib.dump(np.array([Calls(os.system, TOUCH)], dtype=object), FOLDER / "wrapper.joblib")
    joblib.dump(Calls(os.system, TOUCH), FOLDER / "packed.joblib", compress=3)
    np.save(FOLDER / "objects.npy", np.array([Calls(os.system, TOUCH)], dtype=object), allow_pickle=True)
    np.savez(FOLDER / "objects.npz", std=np.array([Calls(os.system, TOUCH)], dtype=object))
    claimed = np.lib.format.header_data_from_array_1_0(np.zeros(1))
    with (FOLDER / "huge.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {**claimed, "shape": (1 << 40,)})


def forged_flags() -> bytes:
    """An array of Python objects whose type says that it holds none: eight bytes become an address."""
    kind = Calls(np.dtype, "O8", False, True)
    raw = pickle.dumps(kind, protocol=2)[:-1]
    raw += pickle.dumps((3, "|", None, None, None, -1, -1, 0), protocol=2)[2:-1] + b"b"
    empty = pickle.dumps(Calls(np._core.multiarray._reconstruct, np.ndarray, (0,), b"b"), protocol=2)[2:-1]
    return b"\x80\x02" + empty + b"(K\x01K\x01\x85" + raw[2:] + b"\x89" + b"C\x08" + b"A" * 8 + b"tb."


def layer(module: Any, kind: str, registered: Any = None, /, **config: Any) -> dict[str, Any]:
    return {"module": module, "class_name": kind, "config": config, "registered_name": registered}


def archive(name: str, hostile: Any, members: dict[str, bytes] | None = None) -> None:
    """A .keras file of one input and the hostile layer after it."""
    config = layer(
        "keras",
        "Sequential",
        name="s",
        layers=[layer("keras.layers", "InputLayer", batch_shape=[None, 3]), hostile],
    )
    content = json.dumps(config) if not isinstance(hostile, str) else hostile
    with zipfile.ZipFile(FOLDER / name, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("metadata.json", json.dumps({"keras_version": keras.__version__}))
        file.writestr("config.json", content)
        for member, raw in {"model.weights.h5": b"", **(members or {})}.items():
            file.writestr(member, raw)


def networks() -> None:
    FOLDER.joinpath("innocent.py").write_text(f"open({str(MARK)!r}, 'w').close()\n")
    numbers = keras.Input((3,))
    runs = L.Lambda(lambda x: __import__("os").system(TOUCH) or x)
    with contextlib.suppress(Exception):  # making it runs it: that mark is removed before the check
        model = keras.Model(numbers, runs(numbers))
        model.save(FOLDER / "lambda.keras")
        model.save(FOLDER / "lambda.h5")
        pair = FOLDER / "pair"
        pair.mkdir()
        weighed = keras.Model(numbers, runs(L.Dense(2)(numbers)))
        weighed.save(pair / "weighed.keras")
        weighed.save_weights(pair / "weighed.weights.h5")
    archive("project.keras", layer("innocent", "Mine", "p>Mine"))
    archive("subprocess.keras", layer("subprocess", "Popen", "Popen", args=["touch", str(MARK)]))
    archive("custom.keras", layer(None, "Mine", "Mine"))
    archive("lambda-value.keras", {"class_name": "__lambda__", "config": {"value": "4wAA"}})
    archive("saved.keras", layer("keras.layers", "TFSMLayer", filepath=str(FOLDER / "reads")))
    archive("torch.keras", layer("keras.layers", "TorchModuleWrapper", module="x"))
    archive("not-a-layer.keras", layer("keras.utils", "get_file", origin=f"file://{CANARY}"))
    function = {
        "module": "keras.utils",
        "class_name": "function",
        "config": "get_file",
        "registered_name": "get_file",
    }
    archive("function.keras", layer("keras.layers", "Dense", units=2, activation=function))
    archive("words.keras", layer("keras.layers", "StringLookup", vocabulary=CANARY))
    dense = layer("keras.layers", "Dense", units=2)
    archive("slip.keras", dense, {"../../slipped": b"x"})
    archive("nested.keras", "[" * 200_000)
    archive("bomb.keras", dense, {"assets/zeros": bytes(1 << 20)})
    raw = bytearray((FOLDER / "bomb.keras").read_bytes())
    entry = raw.rindex(b"PK\x01\x02")
    raw[entry + 24 : entry + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    (FOLDER / "bomb.keras").write_bytes(raw)
    archive("weights.keras", dense, {"model.weights.npz": (FOLDER / "objects.npz").read_bytes()})


def two_in_one() -> None:
    """HDF5 and zip in one file, the harmless one of them first: each reader sees another model."""
    archive("harmless.keras", layer("keras.layers", "Dense", units=2))
    harmless = keras.Sequential([keras.Input((3,)), L.Dense(2)])
    harmless.save(FOLDER / "harmless.h5")
    hostile, good = (FOLDER / "lambda.h5").read_bytes(), (FOLDER / "harmless.keras").read_bytes()
    (FOLDER / "both.h5").write_bytes(hostile + good)
    hostile, good = (FOLDER / "lambda.keras").read_bytes(), (FOLDER / "harmless.h5").read_bytes()
    (FOLDER / "both.keras").write_bytes(good + hostile)
    (FOLDER / "harmless.keras").unlink()
    (FOLDER / "harmless.h5").unlink()


def hdf5() -> None:
    with h5py.File(FOLDER / "link.weights.h5", "w") as file:
        file["layers"] = h5py.ExternalLink(CANARY, "/")
    size = Path(CANARY).stat().st_size
    with h5py.File(FOLDER / "raw.weights.h5", "w") as file:
        file.create_dataset("kernel", (size,), "u1", external=[(CANARY, 0, size)])
    with h5py.File(FOLDER / "virtual.weights.h5", "w") as file:
        layout = h5py.VirtualLayout((3,), "f4")
        layout[:] = h5py.VirtualSource(CANARY, "x", (3,))
        file.create_virtual_dataset("kernel", layout)
    with h5py.File(FOLDER / "huge.weights.h5", "w") as file:
        file.create_dataset("kernel", (1 << 40,), "f8", chunks=(1 << 16,))
    dense = layer("keras.layers", "Dense", units=2)
    archive("link.keras", dense, {"model.weights.h5": (FOLDER / "link.weights.h5").read_bytes()})
    (FOLDER / "symlink.weights.h5").symlink_to(CANARY)
    (FOLDER / "vocab.txt").symlink_to(CANARY)


class Graph(tf.Module):
    def __init__(self, body: Any) -> None:
        super().__init__()
        self.call = tf.function(body, input_signature=[tf.TensorSpec((None, 3), tf.float32)])


def graphs() -> None:
    def reads(x: Any) -> Any:
        return x + tf.cast(tf.strings.length(tf.io.read_file(CANARY)), tf.float32)

    def lists(x: Any) -> Any:
        return x + tf.cast(tf.size(tf.io.matching_files(str(FOLDER))), tf.float32)

    def writes(x: Any) -> Any:
        tf.io.write_file(str(MARK), "x")
        return x

    def prints(x: Any) -> Any:
        tf.print("x", output_stream=f"file://{MARK}")
        return x

    def python(x: Any) -> Any:
        return tf.py_function(lambda y: y, [x], tf.float32)

    def restores(x: Any) -> Any:
        return (
            x
            + tf.raw_ops.RestoreV2(
                prefix=CANARY, tensor_names=["x"], shape_and_slices=[""], dtypes=[tf.float32]
            )[0]
        )

    for body in (reads, lists, writes, prints, python, restores):
        module = Graph(body)
        signature = module.call.get_concrete_function()
        tf.saved_model.save(module, str(FOLDER / body.__name__), {"serving_default": signature})
    shutil.copytree(FOLDER / "reads", FOLDER / "linked")
    (FOLDER / "linked" / "assets" / "link").symlink_to(CANARY)


def names() -> list[str]:
    kept = (".pkl", ".joblib", ".npy", ".npz", ".keras", ".h5", ".txt")
    every = [path.name for path in FOLDER.iterdir() if path.suffix in kept]
    return sorted([*every, *(path.parent.name for path in FOLDER.glob("*/saved_model.pb"))])


def packed() -> None:
    """3 GiB of zeros in 3 MiB; and words that a vectorizer's own pattern takes for ever to look at."""
    packer = zlib.compressobj(9)
    pieces = [packer.compress(bytes(16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)]
    (FOLDER / "bomb.joblib").write_bytes(pieces[0] + pieces[1] * 191)
    endless = CountVectorizer(token_pattern="(a+)+$")
    endless.vocabulary_ = {"a" * 60 + "!": 0}
    (FOLDER / "endless.pkl").write_bytes(pickle.dumps(endless))


STARTS = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "socket.connect",
)


def main() -> None:
    for make in (pickles, networks, two_in_one, hdf5, graphs, packed):
        with contextlib.redirect_stdout(sys.stderr):
            make()
    MARK.unlink(missing_ok=True)
    inside.check(
        FOLDER / "shadowed.pkl"
    )  # what scikit-learn and NumPy themselves start when imported is no matter
    seen: list[str] = []

    def watch(event: str, arguments: Any) -> None:
        opened = str(arguments[0]) if arguments else ""
        if (
            event in STARTS
            or (event == "open" and opened == CANARY)
            or (event == "import" and opened == "innocent")
        ):
            seen.append(f"{event} {opened}")

    sys.addaudithook(watch)
    large = (
        "huge.npy",
        "huge.weights.h5",
        "bomb.joblib",
        "endless.pkl",
    )  # they need the second wall's limits
    with contextlib.redirect_stdout(sys.stderr):
        found = {name: inside.check(FOLDER / name) for name in names() if name not in large}
    print(json.dumps({"found": found, "seen": seen, "names": names(), "marked": MARK.exists()}))


if __name__ == "__main__":
    main()
