"""Read weights without a model: every tensor of an HDF5 file, a TensorFlow checkpoint, or a NumPy file."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from .arrays import listed
from .explain import Cause, Refusal, no_reader
from .files import ModelFile
from .links import check_links

_CLASSES = ("Functional", "Sequential", "Model")
_BY_PLACE = "layer_with_weights-"
"""Prefix of names that Keras 2 saves in TensorFlow's format: layer_with_weights-0/kernel/.ATTRIBUTES/…"""
_OWN = ("_CHECKPOINTABLE_OBJECT_GRAPH",)


def read(file: ModelFile) -> Dict[str, Any]:
    """Return `tensors` of the file, by name. Raises Refusal, or what the reader raises."""
    reader = {"weights": _hdf5, "h5": _hdf5, "checkpoint": _checkpoint, "table": _table}[file.kind]
    return {"tensors": listed(reader(file.path))}


def _hdf5(path: Path) -> List[Tuple[str, Any]]:
    import numpy as np

    try:
        h5py = importlib.import_module("h5py")
    except ImportError:
        raise no_reader("h5py") from None
    check_links(path)
    found: List[Tuple[str, Any]] = []

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found.append((name, np.asarray(item)))

    with h5py.File(path, "r") as file:
        file.visititems(take)
    return found


def _checkpoint(prefix: Path) -> List[Tuple[str, Any]]:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    names = sorted(reader.get_variable_to_shape_map())
    return [(name, reader.get_tensor(name)) for name in names if name not in _OWN]


def _table(path: Path) -> List[Tuple[str, Any]]:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise Refusal(
            "Python objects in an array",
            "Save arrays of numbers or texts: array.astype('U').",
            Cause.WOULD_RUN_CODE,
        ) from None
    if isinstance(loaded, np.ndarray):
        return [("", loaded)]
    with loaded:
        try:
            return [(name, loaded[name]) for name in loaded.files]
        except ValueError:
            raise Refusal(
                "Python objects in an array",
                "Save arrays of numbers or texts: array.astype('U').",
                Cause.WOULD_RUN_CODE,
            ) from None


# ---------------------------------------------------------------- the model that the weights belong to


def architecture(file: ModelFile) -> Optional[Path]:
    """Return the model, or configuration of model.to_json(), beside the weights: of the same name, or the
    only one; else None."""
    folder, stem = file.path.parent, file.path.name.split(".")[0]
    models = [*folder.glob("*.keras"), *(p for p in folder.glob("*.json") if _is_config(p))]
    found = sorted(path for path in models if path.is_file() and not path.is_symlink())
    same = [path for path in found if path.name.split(".")[0] == stem]
    return same[0] if same else found[0] if len(found) == 1 else None


def _is_config(path: Path) -> bool:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(value, dict) and value.get("class_name") in _CLASSES and "config" in value


def put_into(model: Any, file: ModelFile, *, keras_3: bool) -> None:
    """Load weights or a checkpoint into a model. Raises an error if they do not fit it.

    Keras 3 cannot read what Keras 2 saved in TensorFlow's format: those are assigned by position.
    """
    if file.kind == "weights":
        model.load_weights(str(file.path))
        return
    import tensorflow as tf

    tensors = dict(_checkpoint(file.path))
    if any(name.startswith(_BY_PLACE) for name in tensors) and keras_3:
        _by_place(model, tensors)
        return
    if any(name.startswith("model/") for name in tensors):
        status = tf.train.Checkpoint(model=model).read(str(file.path))
    else:
        status = tf.train.Checkpoint(model).read(str(file.path))
    status.assert_existing_objects_matched().expect_partial()


def _by_place(model: Any, tensors: Dict[str, Any]) -> None:
    """Assign `layer_with_weights-N/attribute` to the layers with weights, in their order. Raises Refusal."""
    layers = [layer for layer in model.layers if layer.weights]
    given = 0
    for name, value in tensors.items():
        if not name.startswith(_BY_PLACE):
            continue
        place, _, rest = name[len(_BY_PLACE) :].partition("/")
        attribute = rest.partition("/.ATTRIBUTES")[0]
        layer = layers[int(place)] if int(place) < len(layers) else None
        variable = getattr(layer, attribute, None)
        if variable is None or tuple(variable.shape) != tuple(value.shape):
            raise Refusal(
                f"the model has no weights of the shape {tuple(value.shape)} for {name.partition('/.')[0]}",
                "Load the checkpoint in Keras 2, and save it as .weights.h5.",
            )
        variable.assign(value)
        given += 1
    wanted = sum(len(layer.weights) for layer in layers)
    if given != wanted:
        raise Refusal(
            f"the checkpoint has {given} of the model's {wanted} weights",
            "Load the checkpoint in the model that it was saved from.",
        )
