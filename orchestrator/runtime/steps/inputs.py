"""What functions in a pipeline do that tf.data does not report: draw random numbers, or run Python.

It also notes what Keras built a pipeline from: for a PyDataset or a generator that was passed to `fit`, the
script contains no call of tf.data.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set

FUNCTIONS = ("_map_func", "_predicate", "_scan_func")
"""Attributes in which tf.data's transformations store the function that they apply."""

_ADAPTERS = ("py_dataset_adapter.PyDatasetAdapter", "generator_data_adapter.GeneratorDataAdapter")
_SOURCE = "_orch_source"
_MOST = 64


class Work(NamedTuple):
    """`draws` random numbers that differ between passes; runs `python`; None: unknown."""

    draws: Optional[bool]
    python: Optional[bool]


def work_of(dataset: Any) -> Optional[Work]:
    """Return the work of one transformation; None if it applies no function."""
    if not any(hasattr(dataset, name) for name in FUNCTIONS):
        return None
    found = operations(dataset)
    if found is None:
        return Work(None, None)
    return Work(draws(found), any("PyFunc" in name for name in found))


def operations(dataset: Any) -> Optional[Set[str]]:
    """Return types of the operations in the function that a map, filter or interleave applies, including
    functions that it calls; None if they cannot be read.
    """
    function = next((getattr(dataset, name) for name in FUNCTIONS if hasattr(dataset, name)), None)
    try:
        graph = function.function.graph  # type: ignore[union-attr]
        found = {operation.type for operation in graph.get_operations()}
        for called in graph._functions.values():
            found.update(node.op for node in called.cached_definition.node_def)
        return found
    except AttributeError:
        return None


def draws(names: Any) -> bool:
    """Whether operations of these types create other elements in every pass.

    Stateless ones give the same for the same seed, unless the seed itself is incremented: by a generator of
    TensorFlow, or by a variable, as in Keras' layers.
    """
    kinds = list(names)
    stateful = any("Random" in name and not name.startswith("Stateless") for name in kinds)
    counted = any(name.startswith(("Rng", "Assign")) for name in kinds)
    return stateful or (counted and any("Random" in name for name in kinds))


def works_along(dataset: Any) -> List[Work]:
    """Return the work of all transformations that apply a function, from the last to the sources."""
    return [work for one in _along(dataset) if (work := work_of(one)) is not None]


def one_thread(dataset: Any) -> bool:
    """Whether all batches come from Python code that one thread runs: a generator, or a PyDataset with one
    worker. More cores do not make them faster.
    """
    if dataset is None:
        return False
    source = source_of(dataset)
    if source:
        return int(source.get("workers") or 1) == 1
    return any("GeneratorDataset" in (operations(one) or ()) for one in _along(dataset))


def _along(dataset: Any) -> Iterator[Any]:
    waiting, seen = [dataset], 0
    while waiting and seen < _MOST:
        one = waiting.pop(0)
        seen += 1
        yield one
        waiting.extend(one._inputs())


_APPLYING = (
    "Map",
    "ParallelMap",
    "MapAndBatch",
    "FlatMap",
    "Interleave",
    "ParallelInterleave",
    "Filter",
    "Scan",
)


def mark(nodes: List[Dict[str, Any]], works: List[Work]) -> None:
    """Add to tf.data's nodes what their functions do.

    If tf.data has fused or removed nodes, each node gets the worst of all works.
    """
    applying = [node for node in nodes if _plain(str(node["name"])) in _APPLYING]
    if len(applying) != len(works):
        worst = Work(_any([work.draws for work in works]), _any([work.python for work in works]))
        works = [worst] * len(applying)
    for node, work in zip(applying, works):  # noqa: B905
        for key, value in (("draws", work.draws), ("python", work.python)):
            if value is not None:
                node[key] = value


def _any(values: List[Optional[bool]]) -> Optional[bool]:
    if True in values:
        return True
    return None if None in values or not values else False


def _plain(name: str) -> str:
    name = name.rstrip("0123456789")
    return name[:-1] if name.endswith("V") else name


# ---------------------------------------------------------------- what Keras made it of


def name_sources(keras: Any) -> None:
    """From now on, note the origin on whatever Keras builds from a PyDataset or a generator."""
    package = f"{keras.__name__}.src.trainers.data_adapters"
    for name in _ADAPTERS:
        module, kind = name.split(".")
        adapter = getattr(sys.modules.get(f"{package}.{module}"), kind, None)
        if adapter is not None and "get_tf_dataset" in vars(adapter):
            adapter.get_tf_dataset = _noting(adapter.get_tf_dataset)


def source_of(dataset: Any) -> Dict[str, Any]:
    """Return {source: "PyDataset" or "generator", source_name, workers, processes}; {} if the script built
    it.
    """
    found = getattr(dataset, _SOURCE, None)
    return found if isinstance(found, dict) else {}


def _noting(make: Any) -> Any:
    @functools.wraps(make)
    def get_tf_dataset(adapter: Any) -> Any:
        made = make(adapter)
        try:
            object.__setattr__(made, _SOURCE, _described(adapter))
        except (AttributeError, TypeError):  # not one of tf.data's own: nothing is known about it
            pass
        return made

    return get_tf_dataset


def _described(adapter: Any) -> Dict[str, Any]:
    given = getattr(adapter, "py_dataset", None)
    if given is None:
        return {"source": "generator"}
    return {
        "source": "PyDataset",
        "source_name": type(given).__name__,
        "workers": int(getattr(given, "workers", 1) or 1),
        "processes": bool(getattr(given, "use_multiprocessing", False)),
    }
