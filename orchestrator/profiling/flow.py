"""How long the input pipeline takes for one batch, from its nodes' times, and how long after a change.

Nodes that work ahead (prefetch, parallel maps, parallel reads) cut a pipeline into segments that run
concurrently: the slowest determines the pace. Within a segment, nodes work one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.profiling.pipeline import AHEAD, Node, Pipeline

SHARED_POOL = ("Parallel", "MapAndBatch")
"""Nodes whose names begin with these make several elements at once."""

READS_MANY = ("ParallelInterleave", "Interleave", "FlatMap")
"""Nodes that open a dataset for each of their elements."""


@dataclass(frozen=True)
class Change:
    """What a fix does to a pipeline. `parallel`: places of nodes that become parallel, with how many
    elements at once; `without`: places whose work is saved together with all that feeds them; `ahead`: a
    prefetch is put at the end.
    """

    parallel: Mapping[int, float] = field(default_factory=dict)
    without: frozenset[int] = frozenset()
    ahead: bool = False


AS_IT_IS = Change()


def pace(pipeline: Pipeline, change: Change = AS_IT_IS) -> float:
    """Return the seconds that one batch takes at least, determined by the slowest segment."""
    return max(_segments(pipeline, change))


def step_after(pipeline: Pipeline, change: Change, compute: float, floor: float) -> float:
    """Return the seconds of a step whose own work takes `compute`, and which needs the cores for at least
    `floor`.
    """
    made = pace(pipeline, change)
    both = max(compute, made) if change.ahead or runs_ahead(pipeline) else compute + made
    return max(both, floor)


def runs_ahead(pipeline: Pipeline) -> bool:
    """Return whether the last node makes batches while a step runs."""
    return pipeline.last is not None and pipeline.last.name.startswith(AHEAD)


def _segments(pipeline: Pipeline, change: Change) -> list[float]:
    lengths: list[float] = []

    def follow(place: int) -> float:
        """Return the seconds a batch of the segment that this node is in, from here down."""
        if place in change.without:
            return 0.0
        node = pipeline.nodes[place]
        below = sum(follow(input_) for input_ in node.inputs)
        own = node.seconds / pipeline.batches
        if place not in change.parallel and not node.name.startswith(AHEAD):
            return own + below
        lengths.append(_segment(node, own, below, change.parallel.get(place, _at_once(node))))
        return 0.0

    last = follow(0)
    return [*lengths, last]


def _segment(node: Node, own: float, below: float, at_once: float) -> float:
    """Return the seconds a batch of the segment that ends in this node.

    A prefetch does all the work below it in its thread. Parallel reads divide what they read among them. A
    parallel map divides its own work, while a single thread fetches its elements.
    """
    if node.name.startswith("Prefetch"):
        return own + below
    if node.name.startswith(READS_MANY):
        return (own + below) / at_once
    return max(own / at_once, below)


def _at_once(node: Node) -> float:
    return float(node.parallelism or 1) if node.name.startswith(SHARED_POOL) else 1.0
