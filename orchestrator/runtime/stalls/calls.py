"""Record how the training's tf.data pipeline was built, and rebuild it with one call changed.

Every call of a Dataset method leaves its facts on its result: name, inputs, arguments, and the line of the
script. A pipeline can therefore be rebuilt with one call changed; nodes before the change are shared.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

METHODS = (
    "map", "flat_map", "interleave", "filter", "batch", "padded_batch", "ragged_batch", "unbatch", "rebatch",
    "shuffle", "repeat", "take", "skip", "shard", "cache", "prefetch", "enumerate", "window", "with_options",
    "concatenate", "scan", "take_while", "unique", "snapshot", "group_by_window", "bucket_by_sequence_length",
    "rejection_resample", "ignore_errors",
)  # fmt: skip
STATIC = ("zip", "sample_from_datasets", "choose_from_datasets", "from_tensor_slices", "list_files",
          "from_generator", "from_tensors", "range")  # fmt: skip
READERS = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")

_NOTE = "_orch_call"
_depth = threading.local()
_FRAMEWORKS = ("tensorflow", "keras", "tf_keras")


class Call(NamedTuple):
    """A recorded call: `name` of the method, function or class; `site`: (file, line) of the script, None if
    the script did not make the call.
    """

    name: str
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    site: Optional[Tuple[str, int]]

    def given(self, place: int, name: str, default: Any = None) -> Any:
        """Return an argument by its position (the dataset itself is 0) or name."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)

    def with_(self, **changed: Any) -> "Call":
        return self._replace(kwargs={**self.kwargs, **changed})


def record(tf: Any) -> None:
    """From now on, record every call on its result."""
    from tensorflow.python.data.ops import dataset_ops, readers

    kind = dataset_ops.DatasetV2
    for name in METHODS:
        if hasattr(kind, name):
            setattr(kind, name, _noted(name, getattr(kind, name)))
    kind.apply = _noted_apply(kind.apply)
    for name in STATIC:
        if hasattr(kind, name):
            setattr(kind, name, staticmethod(_noted(name, getattr(kind, name))))
    for name in READERS:
        cls = getattr(readers, f"{name}V2")
        cls.__init__ = _noted_init(name, cls.__init__)
    del tf


def call_of(dataset: Any) -> Optional[Call]:
    """Return the call that created a dataset; None if unknown."""
    found = getattr(dataset, _NOTE, None)
    return found if isinstance(found, Call) else None


def chain(dataset: Any) -> List[Tuple[Any, Call]]:
    """Return (dataset, call) from the last call to the sources, each once."""
    found: List[Tuple[Any, Call]] = []
    seen = set()
    waiting = [dataset]
    while waiting:
        one = waiting.pop(0)
        call = call_of(one)
        if call is None or id(one) in seen:
            continue
        seen.add(id(one))
        found.append((one, call))
        waiting.extend(inputs(call))
    return found


def inputs(call: Call) -> List[Any]:
    """Return the datasets among a call's arguments."""
    found: List[Any] = []

    def keep(dataset: Any) -> Any:
        found.append(dataset)
        return dataset

    _mapped((call.args, call.kwargs), keep)
    return found


def operations(dataset: Any) -> List[str]:
    """Return types of the operations in the function that a map, filter or interleave applies."""
    for name in ("_map_func", "_predicate", "_scan_func"):
        function = getattr(dataset, name, None)
        if function is not None:
            try:
                return sorted({operation.type for operation in function.function.graph.get_operations()})
            except AttributeError:
                return []
    return []


Change = Callable[[Any, Call], Optional[Call]]
"""(dataset, its call) -> the call instead; None: as it was."""
After = Callable[[Any, Any], Any]
"""(the dataset as it was, as it is now) -> what takes its place."""


def rebuilt(dataset: Any, change: Change, after: Optional[After] = None, *, fresh: bool = False) -> Any:
    """Return the pipeline with `change` applied to every call. Nodes before the first change are shared,
    unless `fresh`.
    """
    return _Rebuilding(change, after, fresh).of(dataset)


class _Rebuilding:
    def __init__(self, change: Change, after: Optional[After], fresh: bool) -> None:
        self._change, self._after, self._fresh = change, after, fresh
        self._done: Dict[int, Any] = {}

    def of(self, dataset: Any) -> Any:
        if id(dataset) not in self._done:
            self._done[id(dataset)] = self._one(dataset)
        return self._done[id(dataset)]

    def _one(self, dataset: Any) -> Any:
        call = call_of(dataset)
        if call is None:
            return self._and_after(dataset, dataset)
        wanted = self._change(dataset, call) or call
        fed = [self.of(one) for one in inputs(wanted)]
        same = all(new is old for new, old in zip(fed, inputs(wanted)))  # noqa: B905
        if wanted is call and same and not (self._fresh and fed):
            return self._and_after(dataset, dataset)
        args, kwargs = _mapped((wanted.args, wanted.kwargs), self.of)
        with _Seeds(dataset):
            made = _function(wanted.name)(*args, **kwargs)
        object.__setattr__(made, _NOTE, wanted)
        return self._and_after(dataset, made)

    def _and_after(self, old: Any, new: Any) -> Any:
        return new if self._after is None else self._after(old, new)


def _function(name: str) -> Callable[..., Any]:
    import tensorflow as tf

    function: Callable[..., Any] = getattr(tf.data if name in READERS else tf.data.Dataset, name)
    return function


class _Seeds:
    """Seeds for rebuilt datasets: each gets the seed that it had, or a fixed one if it had none, so that no
    seed is drawn.
    """

    def __init__(self, dataset: Any) -> None:
        self._seeds = (getattr(dataset, "_seed", None), getattr(dataset, "_seed2", None))

    def __enter__(self) -> None:
        from tensorflow.python.data.util import random_seed

        self._module, self._original = random_seed, random_seed.get_seed
        if self._seeds[0] is not None and self._seeds[1] is not None:
            random_seed.get_seed = lambda _seed: self._fixed()

    def __exit__(self, *_: Any) -> None:
        self._module.get_seed = self._original

    def _fixed(self) -> Tuple[Any, Any]:
        import tensorflow as tf

        one, two = self._seeds
        assert one is not None and two is not None
        none = tf.executing_eagerly() and int(one) == 0 and int(two) == 0
        return (tf.constant(7, tf.int64), tf.constant(11, tf.int64)) if none else (one, two)


# ---------------------------------------------------------------- noting


def _noted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def noted(*args: Any, **kwargs: Any) -> Any:
        outer = getattr(_depth, "now", 0)
        _depth.now = outer + 1
        try:
            made = original(*args, **kwargs)
        finally:
            _depth.now = outer
        if outer == 0 and call_of(made) is None:
            _note(made, Call(name, args, kwargs, _site()))
        return made

    # AutoGraph must neither convert this function nor stop converting what it calls.
    noted.autograph_info__ = {}  # type: ignore[attr-defined]
    return noted


def _noted_apply(original: Callable[..., Any]) -> Callable[..., Any]:
    """Record the calls that the function given to `apply` makes; the whole `apply`, if these are unknown."""

    @functools.wraps(original)
    def apply(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        if getattr(_depth, "now", 0) == 0 and call_of(made) is None:
            _note(made, Call("apply", args, kwargs, _site()))
        return made

    apply.autograph_info__ = {}  # type: ignore[attr-defined]
    return apply


def _noted_init(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        outer = getattr(_depth, "now", 0)
        _depth.now = outer + 1
        try:
            original(self, *args, **kwargs)
        finally:
            _depth.now = outer
        if outer == 0:
            _note(self, Call(name, args, kwargs, _site()))

    noted.autograph_info__ = {}  # type: ignore[attr-defined]
    return noted


def _note(made: Any, call: Call) -> None:
    try:
        object.__setattr__(made, _NOTE, call)
    except (AttributeError, TypeError):  # not one of tf.data's own: nothing is known about it
        pass


def _site() -> Optional[Tuple[str, int]]:
    """Return the innermost frame that belongs neither to orch nor to a framework."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "").split(".")[0]
        file = frame.f_code.co_filename
        if name not in (*_FRAMEWORKS, "orch_runtime", "functools") and not file.startswith("<"):
            generated = "__autograph_generated_file" in file
            return None if generated or os.sep + "site-packages" + os.sep in file else (file, frame.f_lineno)
        if name in _FRAMEWORKS and name != "tensorflow":
            return None  # Keras built it: no line of the script to change
        frame = frame.f_back
    return None


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a structure of arguments with every dataset in it changed."""
    from tensorflow.python.data.ops import dataset_ops

    if isinstance(value, dataset_ops.DatasetV2):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_mapped(item, change) for item in value)
    if isinstance(value, list) and any(isinstance(item, dataset_ops.DatasetV2) for item in value):
        return [_mapped(item, change) for item in value]
    return value
