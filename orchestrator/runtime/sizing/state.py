"""What a training keeps between two steps, and what its layers pass on, in bytes, by formula."""

from __future__ import annotations

import gc
from typing import Any, Dict, Iterable, List, Optional

_WITHOUT_OUTPUT = ("InputLayer", "Flatten", "Reshape")
"""Layers whose output is their input, or a view of it."""


def describe(models: List[Any], optimizers: List[Any], variables: Iterable[Any]) -> Dict[str, Any]:
    """Return the bytes of a training's state.

    `weights`: all variables except the optimizers'; `trainable`: those of them with a gradient; `slots`: the
    optimizers'; `activations`: the outputs of all layers for one example, None if unknown.
    """
    slots = _distinct(variable for optimizer in optimizers for variable in _variables_of(optimizer))
    own = _distinct([*(v for model in models for v in model.variables), *variables])
    weights = [variable for key, variable in own.items() if key not in slots]
    return {
        "weights": sum(map(_bytes, weights)),
        "trainable": sum(_bytes(v) for v in weights if getattr(v, "trainable", False)),
        "slots": sum(map(_bytes, slots.values())),
        "variables": len(weights) + len(slots),
        "activations": _activations(models),
        "parameters": sum(_bytes(v) // (_itemsize(v) or 1) for v in weights),
    }


def models_alive(keras: Any) -> List[Any]:
    """Return the outermost Keras models that exist in this process and have weights."""
    found = [each for each in gc.get_objects() if isinstance(each, keras.Model) and each.built]
    inner = {id(part) for model in found for part in _parts(model)}
    return [model for model in found if id(model) not in inner and model.weights]


def _parts(model: Any) -> Iterable[Any]:
    try:
        return list(model._flatten_layers(include_self=False))
    except Exception:
        return []


def _variables_of(optimizer: Any) -> List[Any]:
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def _distinct(variables: Iterable[Any]) -> Dict[int, Any]:
    """Return each variable once, by TensorFlow's own variable, which Keras wraps."""
    return {
        id(getattr(v, "value", v) if not callable(getattr(v, "value", None)) else v): v for v in variables
    }


def _itemsize(variable: Any) -> int:
    import tensorflow as tf

    return int(tf.as_dtype(variable.dtype).size or 0)


def _bytes(variable: Any) -> int:
    size = _itemsize(variable)
    for extent in variable.shape:
        size *= int(extent or 0)
    return size


def _activations(models: List[Any]) -> Optional[int]:
    """Return the activations of models whose layers know their outputs; None if there is none."""
    found = [_outputs(model) for model in models]
    known = [size for size in found if size]
    return sum(known) if known and len(known) == len(found) else None


def _outputs(model: Any) -> Optional[int]:
    try:
        return sum(map(_handed_on, model.layers)) or None
    except Exception:  # the layer belongs to no graph, because its model is a class of its own
        return None


def _handed_on(layer: Any) -> int:
    if hasattr(layer, "layers"):
        return sum(map(_handed_on, layer.layers))
    if type(layer).__name__ in _WITHOUT_OUTPUT:
        return 0
    return sum(map(_example_bytes, _list(layer.output)))


def _list(value: Any) -> List[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple)):
        return list(value)
    return [] if value is None else [value]


def _example_bytes(tensor: Any) -> int:
    size = _itemsize(tensor)
    for extent in tensor.shape[1:]:
        if extent is None:
            raise ValueError("its size is not fixed")
        size *= int(extent)
    return size
