"""Loads a model and predicts a batch that is the same on every machine."""

from __future__ import annotations

import base64
import hashlib
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .explain import Refusal
from .files import ModelFile

ROWS = 4
"""Records in the batch, where the model leaves the number open."""

OPEN = 8
"""Size of every other dimension that the model leaves open."""

MAX_VALUES = 4 << 20
"""Bytes of one output that are given as values; of larger ones the digest alone."""


def load_and_predict(file: ModelFile, *, safe: bool) -> Dict[str, Any]:
    """inputs, outputs, note and versions. Raises what the framework raises, or Refusal."""
    keras = _keras()
    if file.kind == "saved_model" and _major(keras) >= 3:
        names, specs, call = _signature(file)
        note = (
            "Keras 3 loads a SavedModel only as keras.layers.TFSMLayer(path); its signature was called here."
        )
    else:
        names, specs, call = _model(keras, file, safe)
        note = None
    batch = [fixed(shape, dtype, index) for index, (shape, dtype) in enumerate(specs)]
    outputs = call(batch)
    return {
        "inputs": [{"name": n, **_facts(a)} for n, a in zip(names, batch)],  # noqa: B905
        "outputs": [{"name": name, **_facts(array, values=True)} for name, array in outputs],
        "note": note,
        **versions(),
    }


def versions() -> Dict[str, Any]:
    """Versions of what was imported so far."""
    modules = {name: sys.modules.get(name) for name in ("keras", "tf_keras", "tensorflow", "numpy")}
    found = {f"{name}_version": getattr(m, "__version__", None) for name, m in modules.items() if m}
    if "keras_version" not in found and "tf_keras_version" in found:
        found["keras_version"] = found["tf_keras_version"]
    return found


def fixed(shape: Sequence[Optional[int]], dtype: str, index: int) -> Any:
    """The batch of input number `index`: an arithmetic pattern, without a random generator.

    Floats lie in [0, 1), integers are 0 and 1 (a row of any embedding), strings are "item 0", "item 1", ….
    """
    import numpy as np

    sizes = [ROWS if axis == 0 else OPEN for axis in range(len(shape))]
    full = [size if size is not None else default for size, default in zip(shape, sizes)]  # noqa: B905
    count = int(np.prod(full, dtype=np.int64))
    counter: Any = np.arange(count, dtype=np.uint64)
    numbers = (counter * np.uint64(2654435761) + np.uint64(97 * index)) % np.uint64(65536)
    if dtype == "string":
        return np.array([f"item {number % 7}" for number in numbers.tolist()], dtype=object).reshape(full)
    if dtype == "bool" or "int" in dtype:
        return (numbers % np.uint64(2)).astype(dtype).reshape(full)
    values = numbers.astype(np.float64) / 65536.0
    return values.astype("float32" if dtype in ("bfloat16", "float16") else dtype).reshape(full)


def _keras() -> Any:
    """The Keras of this environment."""
    import importlib

    for name in ("keras", "tf_keras"):
        if _has(name):
            return importlib.import_module(name)
    raise Refusal(
        "neither keras nor tf_keras is installed here", "Use the stack of the lock with which it was trained."
    )


def _has(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def _major(keras: Any) -> int:
    return int(str(keras.__version__).split(".")[0])


Call = Callable[[List[Any]], List[Tuple[str, Any]]]
Spec = Tuple[Sequence[Optional[int]], str]


def _model(keras: Any, file: ModelFile, safe: bool) -> Tuple[List[str], List[Spec], Call]:
    load = keras.models.load_model
    keep = {"safe_mode": safe} if file.kind == "keras" or _major(keras) >= 3 else {}
    model = load(str(file.path), compile=False, **keep)
    inputs = getattr(model, "inputs", None)
    if not inputs:
        raise Refusal(
            "it loads, but does not say what its input is (a subclassed model)",
            "Call it once on a batch before saving, or give it a functional form.",
        )
    names = [str(getattr(tensor, "name", index)) for index, tensor in enumerate(inputs)]
    specs: List[Spec] = [(tuple(tensor.shape), _dtype(tensor.dtype)) for tensor in inputs]

    def call(batch: List[Any]) -> List[Tuple[str, Any]]:
        given = [keras.ops.convert_to_tensor(a) if _major(keras) >= 3 else a for a in batch]
        structure = getattr(model, "_inputs_struct", None)
        if isinstance(structure, dict):
            argument: Any = dict(zip(sorted(structure), given))  # noqa: B905
        else:
            argument = given[0] if len(given) == 1 else given
        return _named(model(argument, training=False))

    return names, specs, call


def _signature(file: ModelFile) -> Tuple[List[str], List[Spec], Call]:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(file.path))
    signatures = getattr(loaded, "signatures", {})
    key = next((name for name in ("serving_default", "serve") if name in signatures), None)
    if key is None:
        raise Refusal(
            "it has no serving signature", "Export it with model.export(path) or save it as .keras."
        )
    arguments = signatures[key].structured_input_signature[1]
    names = sorted(arguments)
    specs: List[Spec] = [(_shape(arguments[name].shape), _dtype(arguments[name].dtype)) for name in names]

    def call(batch: List[Any]) -> List[Tuple[str, Any]]:
        given = {n: tf.constant(a, arguments[n].dtype) for n, a in zip(names, batch)}  # noqa: B905
        return _named(loaded.signatures[key](**given))  # through `loaded`, which keeps its variables alive

    return names, specs, call


def _named(outputs: Any) -> List[Tuple[str, Any]]:
    """(name, array) of every output, in a fixed order."""
    import numpy as np

    if isinstance(outputs, dict):
        return [pair for key in sorted(outputs) for pair in _prefixed(str(key), outputs[key])]
    if isinstance(outputs, (list, tuple)):
        return [pair for index, value in enumerate(outputs) for pair in _prefixed(str(index), value)]
    return [("", np.asarray(outputs))]


def _prefixed(name: str, outputs: Any) -> List[Tuple[str, Any]]:
    return [(f"{name}/{rest}" if rest else name, array) for rest, array in _named(outputs)]


def _facts(array: Any, *, values: bool = False) -> Dict[str, Any]:
    import numpy as np

    if array.dtype.hasobject:
        raw = "\0".join(str(item) for item in array.reshape(-1)).encode()
        name = "string"
    else:
        little = array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
        raw, name = np.ascontiguousarray(little).tobytes(), str(array.dtype.name)
    facts: Dict[str, Any] = {
        "dtype": name,
        "shape": list(array.shape),
        "sha256": hashlib.sha256(raw).hexdigest(),
    }
    if values:
        facts["values"] = base64.b64encode(raw).decode() if len(raw) <= MAX_VALUES else None
    return facts


def _shape(shape: Any) -> Sequence[Optional[int]]:
    if shape.rank is None:
        raise Refusal("its signature leaves the input's rank open", "Export it with a fixed input shape.")
    return tuple(shape.as_list())


def _dtype(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype))
