"""A training step that can be repeated with a batch of another size."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from .batch import NoBatch, feed, is_tensorflows, leaves, resized

_FEW = 2
"""Number of batches to which a dataset is shortened when a function gets it whose effect is not known yet."""


def train_function_step(
    function: Callable[[Any], Any], iterator: Any, batch: Any, times: int
) -> Callable[[int], Callable[[], Any]]:
    """Return a step of Keras' train function, which pulls `times` batches itself."""

    def step(rows: int) -> Callable[[], Any]:
        given = feed(iterator, resized(batch, rows), times)
        return lambda: function(given)

    return step


class FunctionStep:
    """One call of a tf.function. Its batch is in its arguments, or in a dataset or iterator among them."""

    def __init__(
        self, function: Any, call: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> None:
        self.function = function
        self._call = call
        self._given = (args, kwargs)
        self._source: Any = None
        self._iterator: Any = None

    def first(self) -> Any:
        """Make the call; if its argument is a whole dataset, with a shortened one."""
        args, kwargs = _sources(self._given, self._shortened)
        return self._call(self.function, *args, **kwargs)

    def batch(self) -> Any:
        """Return the batch that it trains on. Raises NoBatch if that is not among its arguments."""
        if self._source is None and self._iterator is not None:
            self._source = next(self._iterator)
        if self._source is not None:
            return self._source
        if not leaves(list(self._given)):
            raise NoBatch("its training function takes no batch: it gets its data by itself")
        return list(self._given)

    def call(self, rows: int) -> Callable[[], Any]:
        """Return the prepared call with so many examples."""
        if self._source is None:
            args, kwargs = resized(list(self._given), rows)
        else:
            batch = resized(self._source, rows)
            args, kwargs = _sources(self._given, lambda source: _source_of(source, batch))
        return lambda: self._call(self.function, *args, **kwargs)

    def variables(self) -> List[Any]:
        """Return all variables that its graphs use."""
        try:
            return [v for graph in self.function._list_all_concrete_functions() for v in graph.variables]
        except Exception:
            return []

    def _shortened(self, source: Any) -> Any:
        if is_tensorflows(source):
            self._iterator = source
            return source
        import tensorflow as tf

        with tf.init_scope():
            self._source = next(iter(source.take(1)), None)
        return source.take(_FEW)


def _sources(structure: Any, change: Callable[[Any], Any]) -> Any:
    """Return the structure with each dataset and iterator of TensorFlow in it changed."""
    import tensorflow as tf

    if isinstance(structure, dict):
        return {key: _sources(item, change) for key, item in structure.items()}
    if type(structure) in (list, tuple):
        return type(structure)(_sources(item, change) for item in structure)
    return (
        change(structure)
        if isinstance(structure, tf.data.Dataset) or is_tensorflows(structure)
        else structure
    )


def _source_of(like: Any, batch: Any) -> Any:
    import tensorflow as tf

    return (
        feed(like, batch, _FEW) if is_tensorflows(like) else tf.data.Dataset.from_tensors(batch).repeat(_FEW)
    )
