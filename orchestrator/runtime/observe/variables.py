"""Values and names of variables, whatever framework or strategy holds them."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple


def raw_variable(variable: Any) -> Any:
    """Return the framework's variable behind a Keras one, which bypasses autocasting; of one that
    tf.distribute copies, the copy of this process, because reading all copies may be a collective operation.
    """
    if _copies(variable) is None and hasattr(variable, "_value"):
        variable = variable._value
    copies = _copies(variable)
    return variable if copies is None else copies[0]


def _copies(variable: Any) -> Optional[Sequence[Any]]:
    """Return the copies that tf.distribute holds; asked of the object itself, which passes on other names."""
    copies: Optional[Sequence[Any]] = getattr(variable, "__dict__", {}).get("_values")
    return copies


def has_several(strategy: Any) -> bool:
    """Whether this process runs several replicas of `strategy`: their values are not told apart."""
    return strategy.num_replicas_in_sync > 1 and len(strategy.extended.worker_devices) > 1


def has_value(variable: Any) -> bool:
    """Whether the variable is initialised, asked eagerly. Reading it earlier yields an empty array or an
    error.
    """
    raw = raw_variable(variable)
    asked = getattr(raw, "is_initialized", None)
    return raw is not None and (asked is None or bool(asked()))


def read_value(variable: Any) -> Any:
    """Return the variable's value now, as a tensor of the graph or the eager context."""
    return raw_variable(variable).read_value()


def as_array(value: Any) -> Any:
    """Return the content of a tensor, variable or array as a numpy array, without a copy if it is in the
    host's memory: read it before the program continues.
    """
    import numpy as np

    raw = raw_variable(value) if hasattr(value, "assign") else value
    return np.asarray(raw.read_value() if hasattr(raw, "read_value") else raw)


def name_of(variable: Any) -> str:
    """Return a name that is the same in every process: the variable's path, or its name without ":0"."""
    variable = variable if _copies(variable) is None else raw_variable(variable)
    path = getattr(variable, "path", None) or getattr(variable, "name", None) or type(variable).__name__
    return str(path).split(":")[0]


def named(variables: Iterable[Any]) -> List[Tuple[str, Any]]:
    """Return (name, variable) pairs, each variable once; equal names get #2, #3, …"""
    result: List[Tuple[str, Any]] = []
    counts: Dict[str, int] = {}
    for variable in variables:
        if any(variable is known for _, known in result):
            continue
        name = name_of(variable)
        counts[name] = counts.get(name, 0) + 1
        result.append((name if counts[name] == 1 else f"{name}#{counts[name]}", variable))
    return result
