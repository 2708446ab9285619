"""Load a model and predict a batch that is the same on every machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import configs, graphs, links, weights
from .arrays import facts
from .explain import Refusal, explain
from .files import ModelFile

_OF_SAVED_MODELS = (
    "Keras 3 loads a SavedModel only as keras.layers.TFSMLayer(path); its signature was called here."
)
_TOLD = ("keras", "tf_keras", "tensorflow", "numpy", "sklearn")
Call = Callable[[List[Any]], List[Tuple[str, Any]]]
Spec = Tuple[Sequence[Optional[int]], str]
Trusted = Tuple[str, ...]
"""Modules that the user named for the check; they are imported."""

ROWS = 4
"""Records in the batch, if the model leaves the number open."""

OPEN = (64, 256, 8)
"""Sizes to try for every other dimension that the model leaves open, until one is accepted. The smallest is
not first: strides can reduce it to an empty tensor, whose mean TensorFlow does not define."""

OPEN_IMAGE = (96, 256, 32)
"""The same for inputs of four or more dimensions."""


def load_and_predict(file: ModelFile, trusted: Trusted) -> Dict[str, Any]:
    """Return inputs, outputs, note and versions. Raises Refusal, or what the framework raises."""
    keras = _keras()
    if file.kind == "saved_model":
        names, specs, call = _signature(file)
        note: Optional[str] = _OF_SAVED_MODELS if _major(keras) >= 3 else "Its signature was called here."
    else:
        keras, model, note = _by_either(keras, file, trusted)
        names, specs, call = _callable(keras, model)
    return {**_predicted(names, specs, call), "note": note, **versions()}


def weights_in_their_model(file: ModelFile, trusted: Trusted) -> Dict[str, Any]:
    """Return `tensors` of weights; and predictions, if the model that they belong to is in the same
    folder."""
    result = {
        **weights.read(file),
        "note": "Weights only: no model lies beside them, so nothing was predicted.",
    }
    beside = weights.architecture(file)
    if beside is None or file.kind == "table":
        return result
    try:
        keras = _keras()
        model = _built(keras, beside, trusted)
        weights.put_into(model, file, keras_3=_major(keras) >= 3)
        predicted = _predicted(*_callable(keras, model))
    except Exception as error:  # the tensors could be read and are compared anyway
        refusal = explain(error, file)
        told = {**result, "note": f"{beside.name} beside it does not take these weights: {refusal.reason}"}
        refused = {"reason": refusal.reason, "way_out": refusal.way_out}
        if refusal.cause is not None:  # predictions exist, but were not checked
            told.update(refused, not_checked=refusal.cause.value)
        return {**told, **versions()}
    return {**result, **predicted, "note": f"Predicted by {beside.name} with these weights.", **versions()}


def _predicted(names: List[str], specs: List[Spec], call: Call) -> Dict[str, Any]:
    """Return inputs and outputs of the fixed batch. Raises Refusal if the model accepts none of its sizes."""
    batch, outputs = _called(specs, call)
    return {
        "inputs": [{"name": n, **facts(a)} for n, a in zip(names, batch)],  # noqa: B905
        "outputs": [{"name": name, **facts(array, values=True)} for name, array in outputs],
    }


def _called(specs: List[Spec], call: Call) -> Tuple[List[Any], List[Tuple[str, Any]]]:
    """Return a batch that the model accepts, and its outputs: the first size with finite outputs, else the
    first accepted."""
    open_ended = any(size is None for shape, _ in specs for size in shape[1:])
    failed: Optional[Exception] = None
    made: Optional[Tuple[List[Any], List[Tuple[str, Any]]]] = None
    for attempt in range(len(OPEN) if open_ended else 1):
        batch = [fixed(shape, dtype, index, attempt) for index, (shape, dtype) in enumerate(specs)]
        try:
            outputs = call(batch)
        except Exception as error:
            failed = failed or error
            continue
        if all(_finite(array) for _, array in outputs):
            return batch, outputs
        made = made or (batch, outputs)
    if made:
        return made
    short = " ".join(str(failed).split())[:300]
    raise Refusal(
        f"it loads, but predicts no batch of {ROWS} records: {type(failed).__name__}: {short}",
        "Give its Input the shape that it needs.",
    )


def _finite(array: Any) -> bool:
    import numpy as np

    return array.dtype.kind not in "fc" or bool(array.size and np.isfinite(array).all())


def versions() -> Dict[str, Any]:
    """Return the versions of the frameworks that are imported."""
    modules = {name: sys.modules.get(name) for name in _TOLD}
    found = {f"{name}_version": getattr(m, "__version__", None) for name, m in modules.items() if m}
    if "keras_version" not in found and "tf_keras_version" in found:
        found["keras_version"] = found["tf_keras_version"]
    return found


def fixed(shape: Sequence[Optional[int]], dtype: str, index: int, attempt: int = 0) -> Any:
    """Return the batch for input number `index`: an arithmetic pattern, without a random generator.

    `attempt` chooses the size of the dimensions that the shape leaves open. Floats are in [0, 1), integers
    are 0 or 1 (valid in any embedding), strings are "item 0", "item 1", ….
    """
    import numpy as np

    size = (OPEN_IMAGE if len(shape) >= 4 else OPEN)[attempt]
    sizes = [ROWS if axis == 0 else size for axis in range(len(shape))]
    full = [given if given is not None else default for given, default in zip(shape, sizes)]  # noqa: B905
    count = int(np.prod(full, dtype=np.int64))
    counter: Any = np.arange(count, dtype=np.uint64)
    numbers = (counter * np.uint64(2654435761) + np.uint64(97 * index)) % np.uint64(65536)
    if dtype == "string":
        return np.array([f"item {number % 7}" for number in numbers.tolist()], dtype=object).reshape(full)
    if dtype == "bool" or "int" in dtype:
        return (numbers % np.uint64(2)).astype(dtype).reshape(full)
    values = numbers.astype(np.float64) / 65536.0
    return values.astype("float32" if dtype in ("bfloat16", "float16") else dtype).reshape(full)


def import_framework() -> None:
    """Import what most models need. Raises Refusal if no Keras is installed."""
    _keras()


def _keras() -> Any:
    """Return this environment's Keras; tf_keras is preferred if TF_USE_LEGACY_KERAS says so, as in
    TensorFlow."""
    import importlib
    import os

    legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    for name in ("tf_keras", "keras") if legacy else ("keras", "tf_keras"):
        if _has(name):
            _choose_backend()
            return importlib.import_module(name)
    raise Refusal(
        "neither keras nor tf_keras is installed here", "Use the stack of the lock with which it was trained."
    )


def _choose_backend() -> None:
    """Choose an installed backend for Keras 3 if KERAS_BACKEND is not set and its default, TensorFlow, is not
    installed."""
    import os

    if "KERAS_BACKEND" not in os.environ and not _has("tensorflow"):
        found = next((name for name in ("jax", "torch") if _has(name)), None)
        if found:
            os.environ["KERAS_BACKEND"] = found


def _has(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def _major(keras: Any) -> int:
    return int(str(keras.__version__).split(".")[0])


def _by_either(keras: Any, file: ModelFile, trusted: Trusted) -> Tuple[Any, Any, Optional[str]]:
    """Return (the Keras that loads it, the model, a note). If Keras 3 fails on a model of Keras 2, tf_keras
    is tried if installed."""
    import importlib

    try:
        return keras, _loaded(keras, file.path, trusted), None
    except Refusal:
        raise
    except Exception as error:
        if _major(keras) < 3 or not file.saved_with.startswith("2.") or not _has("tf_keras"):
            raise
        older = importlib.import_module("tf_keras")
        model = _loaded(older, file.path, trusted)
        note = (
            f"Keras {keras.__version__} does not load it ({explain(error, file).reason}); tf_keras "
            f"{older.__version__} does: set TF_USE_LEGACY_KERAS=1, or save it again with Keras 3."
        )
        return older, model, note


def _loaded(keras: Any, path: Path, trusted: Trusted) -> Any:
    """Return a file's model, after its configuration and links were checked. Keras' own safe mode stays on as
    well."""
    configs.check_config(keras, configs.configuration(path), trusted)
    links.check_links(path)
    keep = {"safe_mode": True} if path.suffix == ".keras" or _major(keras) >= 3 else {}
    return keras.models.load_model(str(path), compile=False, **keep)


def _built(keras: Any, path: Path, trusted: Trusted) -> Any:
    """Return a model from its file, or from a configuration that model.to_json() wrote."""
    if path.suffix != ".json":
        return _loaded(keras, path, trusted)
    config = configs.configuration(path)
    configs.check_config(keras, config, trusted)
    if _major(keras) >= 3 and str(config.get("keras_version", "")).startswith("2."):
        import importlib

        older: Any = importlib.import_module("keras.src.legacy.saving.saving_utils")  # as for its .h5
        return older.model_from_config(config)
    return keras.models.model_from_json(json.dumps(config))


def _callable(keras: Any, model: Any) -> Tuple[List[str], List[Spec], Call]:
    """Return names and shapes of a model's inputs, and the model as a function of arrays."""
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

    graphs.check_graphs(file.path)
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
    """Return (name, array) of every output, in a fixed order."""
    import numpy as np

    if isinstance(outputs, dict):
        return [pair for key in sorted(outputs) for pair in _prefixed(str(key), outputs[key])]
    if isinstance(outputs, (list, tuple)):
        return [pair for index, value in enumerate(outputs) for pair in _prefixed(str(index), value)]
    of_torch = hasattr(outputs, "detach")
    return [("", np.asarray(outputs.detach().cpu() if of_torch else outputs))]


def _prefixed(name: str, outputs: Any) -> List[Tuple[str, Any]]:
    return [(f"{name}/{rest}" if rest else name, array) for rest, array in _named(outputs)]


def _shape(shape: Any) -> Sequence[Optional[int]]:
    if shape.rank is None:
        raise Refusal("its signature leaves the input's rank open", "Export it with a fixed input shape.")
    return tuple(shape.as_list())


def _dtype(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype))
