"""The input pipeline as tf.data itself reports it: elements, time, bytes, buffered and parallelism of
each node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.profiling.trace import Line, Trace, amount, number

AHEAD = ("Prefetch", "ParallelMap", "MapAndBatch", "ParallelBatch", "ParallelInterleave")
"""Nodes that work ahead of the node that pulls from them, by the beginning of their names."""

ENOUGH = 4
"""An observation after 1/4 of the most batches observed counts as long enough."""

READERS = ("TFRecord", "TextLine", "FixedLengthRecord")
RANDOM = ("Shuffle", "Random", "Sampling", "RejectionResample")
_INDICES = (
    "FlatMap", "Map", "Prefetch", "Range", "Repeat", "FiniteRepeat", "TensorSlice", "FromTensor", "Tensor",
    "Concatenate",
)  # fmt: skip
_MOVES = frozenset(
    ("TensorSlice", "FromTensor", "Tensor", "Range", "Zip", "Concatenate", "Batch", "ParallelBatch", "Take",
     "Skip", "Shard", "Window", "Rebatch", "Unbatch", "Options", "Prefetch")
)  # fmt: skip
"""Nodes of data that are in memory, and nodes that pass on their input."""

_WHOLE = ("ForeverRepeat", "Repeat", "FromTensor", "Tensor")
"""The nodes from which Keras makes the indices of a batch, and from which it gathers. Sources that were
read to their end may be missing.
"""

_CALLS = {
    "Map": ".map(…)",
    "ParallelMap": ".map(…)",
    "MapAndBatch": ".map(…).batch(…)",
    "Batch": ".batch(…)",
    "ParallelBatch": ".batch(…)",
    "PaddedBatch": ".padded_batch(…)",
    "Filter": ".filter(…)",
    "FlatMap": ".flat_map(…)",
    "Interleave": ".interleave(…)",
    "ParallelInterleave": ".interleave(…)",
    "Generator": "from_generator(…)",
    "TFRecord": "TFRecordDataset(…)",
    "TextLine": "TextLineDataset(…)",
    "FixedLengthRecord": "FixedLengthRecordDataset(…)",
}


@dataclass(frozen=True)
class Node:
    """One transformation. `seconds` of work for `elements`, without waiting for its inputs.

    `parallelism` and `buffer` as tf.data last set them; None if the node has none. `copies`: how many such
    nodes existed at once, as an interleave makes them. `draws`: its function draws random numbers; `python`:
    its function runs Python; None: not known, or it has no function.
    """

    name: str
    elements: int
    seconds: float
    bytes: int
    buffered: int
    parallelism: int | None
    buffer: int | None
    copies: int
    inputs: tuple[int, ...]
    draws: bool | None = None
    python: bool | None = None

    @property
    def per_element(self) -> float | None:
        """Seconds."""
        return self.seconds / self.elements if self.elements else None

    @property
    def call(self) -> str:
        """The call as a script writes it."""
        return _CALLS.get(self.plain, self.plain)

    @property
    def plain(self) -> str:
        """Its name without a version."""
        return self.name.rstrip("0123456789").removesuffix("V")


@dataclass(frozen=True)
class Pipeline:
    """`nodes` from the last, which is called Root, to the sources, as observed after `batches` batches.

    `epoch_batches`: batches of a whole epoch, None until one has ended. `passes`: epochs begun.
    """

    nodes: tuple[Node, ...]
    batches: int
    epoch_batches: int | None
    passes: int

    def below(self, place: int) -> Iterator[int]:
        """Yield the places of a node and of all that feeds it."""
        yield place
        for input_ in self.nodes[place].inputs:
            yield from self.below(input_)

    @property
    def last(self) -> Node | None:
        """The node that gives batches to the training."""
        feeding = self.nodes[0].inputs
        return self.nodes[feeding[0]] if feeding else None

    @property
    def of_arrays(self) -> bool:
        """Whether Keras made it from arrays given to `fit`, so that its nodes correspond to no call in the
        script.

        Keras zips indices (slices of a permutation, flattened) with the whole arrays, repeated without end,
        and gathers from the arrays what the indices say.
        """
        place = 0
        while len(self.nodes[place].inputs) == 1:
            place = self.nodes[place].inputs[0]
            if self.nodes[place].plain not in ("Prefetch", "ParallelMap", "Map", "Options", "Zip"):
                return False
        if self.nodes[place].plain != "Zip" or len(self.nodes[place].inputs) != 2:
            return False
        indices, arrays = (self._kinds(input_) for input_ in self.nodes[place].inputs)
        repeated = bool(arrays & {"ForeverRepeat", "Repeat"}) and arrays <= {*_WHOLE}
        return repeated and "FlatMap" in indices and indices <= {*_INDICES}

    def _kinds(self, place: int) -> set[str]:
        return {self.nodes[below].plain for below in self.below(place)}

    @property
    def sources(self) -> Sequence[Node]:
        return [node for node in self.nodes if not node.inputs]

    def only_moves_memory(self, place: int) -> bool:
        """Return whether everything below a node is in memory already, and is only reordered there."""
        return all(self.nodes[below].plain in _MOVES for below in self.below(place))

    @property
    def busiest(self) -> Node:
        return max(self.nodes, key=lambda node: node.seconds)

    def seconds_a_batch(self, places: Sequence[int] | None = None) -> float:
        """Return the work of these nodes (default: all) for one batch, in seconds of one core."""
        chosen = range(len(self.nodes)) if places is None else places
        return sum(self.nodes[place].seconds for place in chosen) / self.batches

    @property
    def batch(self) -> int | None:
        """Examples in a batch, from the elements that went into the batching node and those that came out."""
        for node in self.nodes:
            below = [self.nodes[input_] for input_ in node.inputs]
            if "Batch" in node.name and node.elements and len(below) == 1:
                return round(below[0].elements / node.elements) or None
        return None

    def as_json(self) -> list[dict[str, Any]]:
        """Return the nodes as in `run.json`; seconds and bytes are per element."""
        return [
            {
                "name": node.name,
                "elements": node.elements,
                "seconds": round(node.per_element, 9) if node.per_element is not None else None,
                "bytes": round(node.bytes / node.elements) if node.elements else None,
                "buffered": node.buffered,
                "parallelism": node.parallelism,
                "buffer": node.buffer,
                "inputs": list(node.inputs),
                "draws": node.draws,
                "python": node.python,
            }
            for node in self.nodes
        ]


def pipeline_of(trace: Trace, process: str | None) -> Pipeline | None:
    """Return the pipeline of the process that trains, as observed in the last epoch that was observed long
    enough.

    tf.data forgets sources that are read to their end: within one epoch, the observation with most nodes
    counts. None if tf.data reported nothing.
    """
    lines = [line for line in trace.pipelines if str(line.get("pid")) == process]
    found = [pipeline for line in lines if (pipeline := _pipeline(line)) is not None]
    most = max((pipeline.batches for pipeline in found), default=0)
    passes = max((pipeline.passes for pipeline in found), default=0)
    epochs = max((pipeline.epoch_batches or 0 for pipeline in found), default=0)
    telling = [pipeline for pipeline in found if pipeline.batches * ENOUGH >= most]
    best = max(telling, key=lambda seen: (seen.passes, len(seen.nodes), seen.batches), default=None)
    return best and Pipeline(best.nodes, best.batches, epochs or None, passes)


def _pipeline(line: Line) -> Pipeline | None:
    listed = line.get("nodes")
    batches = int(amount(line, "batches"))
    if not isinstance(listed, list) or not listed or not batches:
        return None
    nodes = [_node(node, place, len(listed)) for place, node in enumerate(listed) if isinstance(node, dict)]
    if len(nodes) != len(listed):
        return None
    epoch = number(line, "epoch_batches")
    return Pipeline(tuple(nodes), batches, int(epoch) if epoch else None, int(amount(line, "iterator")) or 1)


def _node(node: Line, place: int, count: int) -> Node:
    inputs = node.get("inputs")
    later = range(place + 1, count)  # a node comes before what feeds it: there is no circle
    return Node(
        name=str(node.get("name", ""))[:80],
        elements=int(amount(node, "n")),
        seconds=amount(node, "s"),
        bytes=int(amount(node, "bytes")),
        buffered=int(amount(node, "buffered")),
        parallelism=_optional(node, "parallelism"),
        buffer=_optional(node, "buffer"),
        copies=int(amount(node, "copies")) or 1,
        inputs=tuple(i for i in inputs if isinstance(i, int) and i in later)
        if isinstance(inputs, list)
        else (),
        draws=_flag(node, "draws"),
        python=_flag(node, "python"),
    )


def _flag(node: Line, key: str) -> bool | None:
    value = node.get(key)
    return value if isinstance(value, bool) else None


def _optional(node: Line, key: str) -> int | None:
    value = number(node, key)
    return None if value is None else int(value)
