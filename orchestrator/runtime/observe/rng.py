"""States of a process's random number generators, read without advancing them."""

from __future__ import annotations

import hashlib
import sys
from typing import Any, Callable, Dict

from .surroundings import read_all


def states() -> Dict[str, Any]:
    """Return each generator's state: a seed as a number, a full state as the first 16 hex digits of its
    sha256.

    Null for a generator that was not created. Runs with different states may still be equal: a script may
    never draw from that generator.
    """
    readings: Dict[str, Callable[[], Any]] = {
        "python": _python,
        "numpy": _numpy,
        "tensorflow_seed": lambda: _context()._seed,
        "tensorflow_operations": lambda: _digest(repr(_context()._rng.getstate())),
        "tensorflow_generator": _global_generator,
        "keras_seed": lambda: _keras("global_random_seed"),
        "keras_generator": lambda: _array(_keras("global_seed_generator").state),
    }
    return read_all(readings)


def _python() -> str:
    import random

    return _digest(repr(random.getstate()))


def _numpy() -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    kind, keys, position, has_gauss, gauss = numpy.random.get_state()
    return _digest(f"{kind} {keys.tobytes().hex()} {position} {has_gauss} {gauss!r}")


def _context() -> Any:
    return sys.modules["tensorflow.python.eager.context"].context()


def _global_generator() -> Any:
    made = sys.modules["tensorflow.python.ops.stateful_random_ops"].global_generator
    return None if made is None else _array(made.state)


def _keras(name: str) -> Any:
    """Return an attribute of Keras 3's global state. Raises KeyError if that module is not loaded."""
    state = sys.modules["keras.src.backend.common.global_state"]
    return state.get_global_attribute(name)


def _array(variable: Any) -> str:
    value = getattr(variable, "value", variable)
    value = value() if callable(value) else value
    array = value.numpy() if hasattr(value, "numpy") else sys.modules["numpy"].asarray(value)
    return _digest(array.tobytes().hex())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
