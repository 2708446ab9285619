"""What tf.data knows of the pipeline that feeds the training, read between two steps.

For its autotuning, tf.data keeps a model of every iterator: for each node the number of elements, their time,
buffered elements and parallelism. `tf.data.experimental.get_model_proto` returns it. Keras' `fit` passes the
iterator to each step, so it can be queried there; this takes about fifty microseconds and moves nothing in
the pipeline. Without autotuning there is no such model.
"""

from __future__ import annotations

import sys
import weakref
from time import perf_counter, process_time
from typing import Any, Dict, List, Optional, Tuple

from ..cadence import Cadence
from .inputs import Work, mark, source_of, works_along
from .log import StepLog
from .probe import is_plain

OLDEST, BEYOND = (2, 16), (3, 0)
"""Versions of TensorFlow whose models are known to mean what is read here."""

_BASE = 5.0
"""Seconds between two queries, at first."""

_EARLY = (8, 32, 128)
"""Numbers of batches after which the pipeline is queried anyway, so that a short training is observed too."""

_MOST = 32
"""Maximum number of nodes in a line."""


class Pipelines:
    """Query the training's iterator from time to time, and count the elements that it returned."""

    def __init__(self, log: StepLog) -> None:
        self._log = log
        self._cadence = Cadence(_BASE)
        self._size = 0
        self._due = perf_counter() + self._cadence.next()
        self._works = True
        self._iterator: Any = None
        self._ordinal = 0
        self._batches = 0
        self._all = 0
        self._early = list(_EARLY)
        self._epoch: Optional[int] = None
        self._told = False
        self._works_of: Tuple[Any, List[Work]] = (None, [])

    def pulled(self, iterator: Any, batches: int, model: Any) -> None:
        """Note that the step before took `batches` from `iterator`. Writes a line if it is due."""
        if not self._works or not is_plain(iterator):
            return
        if self._iterator is None or self._iterator() is not iterator:
            self._begin(iterator)
        self._batches += batches
        self._all += batches
        if perf_counter() >= self._due or (self._early and self._all >= self._early[0]):
            self._early = [count for count in self._early if count > self._all]
            self._look(iterator, model)

    def _begin(self, iterator: Any) -> None:
        """Start a new epoch with another iterator; the last one was read to its end, or nearly."""
        if self._ordinal:
            self._epoch = max(self._batches, self._epoch or 0)
        self._ordinal += 1
        self._batches = 0
        self._iterator = weakref.ref(iterator)

    def _look(self, iterator: Any, model: Any) -> None:
        began = process_time()
        try:
            if model is not None and not self._told:
                self._told = True
                self._log.note({"event": "model", **describe(model, iterator)})
            self._size = self._log.note(self._line(iterator))
        except Exception as error:  # no model, or one in another format: only this fact is missing
            self._works = False
            self._log.note({"event": "pipeline", "unknown": type(error).__name__})
        self._due = perf_counter() + self._cadence.next(process_time() - began, self._size)

    def _line(self, iterator: Any) -> Dict[str, Any]:
        tf = sys.modules["tensorflow"]
        if not OLDEST <= _version(tf) < BEYOND:
            self._works = False
            return {"event": "pipeline", "unknown": f"TensorFlow {tf.__version__}"}
        nodes = describe_nodes(tf.data.experimental.get_model_proto(iterator))
        mark(nodes, self._functions(iterator))
        return {
            "event": "pipeline",
            "iterator": self._ordinal,
            "batches": self._batches,
            "epoch_batches": self._epoch,
            "nodes": nodes,
        }

    def _functions(self, iterator: Any) -> List[Work]:
        """Return what the functions of its dataset do, inspected once: the same dataset feeds every epoch."""
        dataset = getattr(iterator, "_dataset", None)
        known, found = self._works_of
        if dataset is None or known is None or known() is not dataset:
            found = [] if dataset is None else works_along(dataset)
            self._works_of = (None if dataset is None else weakref.ref(dataset), found)
        return found


def describe_nodes(model: Any) -> List[Dict[str, Any]]:
    """Describe a ModelProto's nodes from the last to the sources; equal ones on the same path are combined.

    `n` elements, `s` seconds of work (without waiting for inputs), `bytes` of them; `buffered` elements that
    wait now; `parallelism` and `buffer` as set now; `copies` of a node that exists several times (one for
    each file of an interleave); `inputs`: positions in this list.
    """
    found: List[Dict[str, Any]] = []
    places: Dict[Tuple[int, str], int] = {}
    waiting: List[Tuple[int, int]] = [(model.output, -1)]
    while waiting:
        number, parent = waiting.pop(0)
        node = model.nodes[number]
        place = places.get((parent, node.name))
        if place is None:
            if len(found) == _MOST:
                continue
            place = places[parent, node.name] = len(found)
            found.append(
                {"name": node.name, "n": 0, "s": 0.0, "bytes": 0, "buffered": 0, "copies": 0, "inputs": []}
            )
            if parent >= 0:
                found[parent]["inputs"].append(place)
        _add(found[place], node)
        waiting.extend((input_, place) for input_ in node.inputs if input_ in model.nodes)
    return found


def _add(line: Dict[str, Any], node: Any) -> None:
    line["n"] += node.num_elements
    line["s"] = round(line["s"] + node.processing_time / 1e9, 6)
    line["bytes"] += node.bytes_produced
    line["buffered"] += node.buffered_elements
    line["copies"] += 1
    for parameter in node.parameters:
        key = {"parallelism": "parallelism", "buffer_size": "buffer"}.get(parameter.name)
        if key:
            line[key] = max(line.get(key, 0), int(parameter.state_value or parameter.value))


def describe(model: Any, iterator: Any) -> Dict[str, Any]:
    """Return the facts of a training that decide which advice could apply; None for unknown ones."""
    return {
        "parameters": _try(lambda: int(model.count_params())),
        "policy": _try(lambda: str(model.dtype_policy.name)),
        "optimizer": _try(lambda: type(model.optimizer).__name__),
        "steps_per_execution": _try(lambda: int(model.steps_per_execution)),
        "batch": _try(lambda: _batch_of(iterator)),
        "epochs": _try(lambda: int(model.history.params["epochs"])),
        "epoch_steps": _try(lambda: int(model.history.params["steps"])),
        "gpus": _try(_gpus_in_use),
        "growth": _try(_growth),
        "eager": _try(lambda: bool(model.run_eagerly)),
        **(_try(lambda: source_of(iterator._dataset)) or {}),
    }


def _try(of: Any) -> Any:
    try:
        return of()
    except Exception:
        return None


def _batch_of(iterator: Any) -> Optional[int]:
    """Return the examples in a batch, None if its size is not fixed."""
    tf = sys.modules["tensorflow"]
    size = tf.nest.flatten(iterator.element_spec)[0].shape[0]
    return None if size is None else int(size)


def _gpus_in_use() -> int:
    return len(sys.modules["tensorflow"].config.list_logical_devices("GPU"))


def _growth() -> Optional[bool]:
    """Whether GPU memory is allocated as needed; None if there is no GPU."""
    config = sys.modules["tensorflow"].config
    found = [bool(config.experimental.get_memory_growth(gpu)) for gpu in config.list_physical_devices("GPU")]
    return all(found) if found else None


def _version(tf: Any) -> Tuple[int, int]:
    major, minor, *_ = tf.__version__.split(".")
    return int(major), int(minor)
