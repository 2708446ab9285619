"""What models and optimizers contain, and how their steps are called, for both Keras 3 and tf-keras 2."""

from __future__ import annotations

from typing import Any, Dict, List

from .digest import flatten
from .variables import as_array


def owner_of(kind: Any, method: str) -> Any:
    """Return the class among kind's ancestors that defines `method`."""
    return next(base for base in kind.__mro__ if method in base.__dict__)


def optimizer_methods(keras: Any) -> List[Any]:
    """Return (class, method) for every method with which an optimizer of this Keras updates weights."""
    if hasattr(keras.optimizers.Optimizer, "apply"):
        base = owner_of(keras.optimizers.Optimizer, "apply")
        scaled = getattr(keras.optimizers, "LossScaleOptimizer", None)
        return [(kind, "apply") for kind in (base, scaled) if kind is not None and "apply" in kind.__dict__]
    found: Dict[Any, None] = {}
    candidates = [keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer]
    candidates += [keras.mixed_precision.LossScaleOptimizer, *keras.optimizers.Optimizer.__subclasses__()]
    for kind in candidates:
        for base in kind.__mro__:
            if "apply_gradients" in base.__dict__:
                found[base] = None
    return [(kind, "apply_gradients") for kind in found]


def trained_by(optimizer: Any, args: Any, kwargs: Any) -> List[Any]:
    """Return the variables that this call updated."""
    given = kwargs.get("trainable_variables") or kwargs.get("grads_and_vars")
    given = given or (args[1] if len(args) > 1 else None)
    if given is None and args and args[0] and isinstance(args[0][0], tuple):
        given = args[0]
    given = list(given or getattr(optimizer, "_trainable_variables", []))
    return [item[1] if isinstance(item, tuple) else item for item in given]


def steps_of_a_call(model: Any) -> int:
    """Return the number of steps that one call of a model's train_function makes."""
    kept = getattr(model, "steps_per_execution", None) or getattr(model, "_steps_per_execution", None) or 1
    return int(kept.numpy() if hasattr(kept, "numpy") else kept)


def reported_by(logs: Any) -> List[Any]:
    """Return (name, array) of what a call reported."""
    import numpy as np

    found = [(name or "value", as_array(value)) for name, value in flatten(logs) if value is not None]
    return [(name, array) for name, array in found if isinstance(array, np.ndarray)]


def slots_of(optimizer: Any) -> List[Any]:
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def state_of(layer: Any) -> List[Any]:
    """Return a layer's variables, including random state, without metrics (they are read after the step)."""
    metrics = {id(v) for v in getattr(layer, "metrics_variables", [])}
    for metric in getattr(layer, "metrics", []) if not metrics else []:
        metrics.update(id(v) for v in metric.variables)
    return [v for v in layer.variables if id(v) not in metrics]


def in_order(gradients: Any) -> List[Any]:
    """Return gradients in order; None is kept, IndexedSlices are not split."""
    if isinstance(gradients, dict):
        return [part for key in sorted(gradients) for part in in_order(gradients[key])]
    if isinstance(gradients, (list, tuple)):
        return [part for item in gradients for part in in_order(item)]
    return [gradients]


def is_symbolic() -> bool:
    """Whether Keras is only inferring shapes, so that nothing computed now has a value."""
    import sys

    scope = sys.modules.get("keras.src.backend.common.stateless_scope")
    return bool(scope and scope.in_stateless_scope())
