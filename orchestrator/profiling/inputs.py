"""Preconditions of advice about the input pipeline: what makes the step wait, and where in the pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.model.counted import counted, rounded
from orchestrator.profiling.advice import Ground, predicted
from orchestrator.profiling.evidence import Evidence
from orchestrator.profiling.flow import Change, runs_ahead
from orchestrator.profiling.pipeline import RANDOM, READERS, Node, Pipeline

WAIT_SECONDS = 50e-6
"""A shorter wait is only the cost of fetching a batch that is ready."""

WAIT_SHARE = 0.05
IDLE_CORES = 0.5
HEAVY = 0.3
"""Share of the pipeline's work from which on a node is reported."""

WORTH_CACHING = 0.05
"""A smaller share of the work is not worth caching: these are examples that are in memory already."""

FITS = 0.7
"""The share of the memory that was free at the worst moment which a cache may use."""

AT_ONCE = 4
"""Files that parallel reads open at once: fixed, because the order of the elements depends on it."""

AT_ITS_CAP = 0.9
SLOW_READ_MS = 5.0
SMALL_FILE = 1_000_000
_NAME_BYTES = 1024
_MIB = 1 << 20
_GIB = 1 << 30


def starved(evidence: Evidence) -> bool:
    """Return whether the wait for input exceeds the cost of a ready batch and the measurement's error."""
    share, wait = evidence.steps.input_wait, evidence.wait
    if share is None or wait is None or wait < WAIT_SECONDS:
        return False
    return share >= max(WAIT_SHARE, 2 * (evidence.steps.wait_error or 0.0))


def waits(evidence: Evidence) -> str:
    return f"Steps wait for input for {evidence.steps.input_wait or 0:.0%} of their time"


def idle_cores(evidence: Evidence) -> float:
    """Return the cores that nobody uses; 0 if not known, so that nothing is advised that needs some."""
    return evidence.usage.idle or 0.0 if not evidence.crowded else 0.0


def _fed(evidence: Evidence) -> Pipeline | None:
    """Return the pipeline if the step waits for it and the script can change it."""
    return _own(evidence) if starved(evidence) else None


def _own(evidence: Evidence) -> Pipeline | None:
    """Return the pipeline if it is the script's: the one that Keras makes itself cannot be edited."""
    pipeline = evidence.pipeline
    made = pipeline is None or pipeline.of_arrays or evidence.training.source is not None
    return None if made else pipeline


# ---------------------------------------------------------------- prefetch, parallel map, parallel reads


def nothing_ahead(evidence: Evidence) -> Ground | None:
    pipeline = _fed(evidence)
    if pipeline is None or runs_ahead(pipeline):
        return None
    return Ground(f"{waits(evidence)}, and nothing prepares the next batch while a step runs.")


def after_prefetch(evidence: Evidence, ground: Ground) -> float | None:
    del ground
    return predicted(evidence, Change(ahead=True))


def serial_map(evidence: Evidence) -> Ground | None:
    pipeline = _fed(evidence)
    if pipeline is None or evidence.cores < 2 or idle_cores(evidence) < IDLE_CORES:
        return None
    maps = [place for place, node in enumerate(pipeline.nodes) if _could_be_parallel(node, evidence.cores)]
    place = max(maps, key=lambda place: pipeline.nodes[place].seconds, default=None)
    if place is None or not _heavy(pipeline, [place]):
        return None
    return Ground(
        f"{waits(evidence)}, {_share(pipeline, [place])} of the pipeline's work is in "
        f"{pipeline.nodes[place].call}, {_now(pipeline.nodes[place])}, and "
        f"{idle_cores(evidence):.1f} of {counted(evidence.cores, 'core')} are idle.",
        (place,),
        {"call": pipeline.nodes[place].call},
        evidence.cores,
    )


def _could_be_parallel(node: Node, cores: float) -> bool:
    """Return whether a map could use more threads. A map without `num_parallel_calls` is fused with the
    batch behind it, and stays so.
    """
    if node.name.startswith(("MapAndBatch", "ParallelMap")):
        return (node.parallelism or 1) <= cores / 2
    return node.name.startswith("Map")


def _now(node: Node) -> str:
    many = node.parallelism or 1
    return "one element at a time" if many == 1 else f"{many} elements at a time"


def after_parallel(evidence: Evidence, ground: Ground) -> float | None:
    """Return the predicted seconds of a step; None for Python code: its threads take turns, and how much
    of its work runs outside of Python is not known.
    """
    if evidence.pipeline is not None and evidence.pipeline.nodes[ground.places[0]].python:
        return None
    return predicted(evidence, Change(parallel=dict.fromkeys(ground.places[:1], ground.amount)))


def one_reader(evidence: Evidence) -> Ground | None:
    pipeline = _fed(evidence)
    if pipeline is None or _at_its_cap(evidence) or idle_cores(evidence) < IDLE_CORES:
        return None
    readers = _readers(pipeline)
    parents = [place for place in range(len(pipeline.nodes)) if _opens(pipeline, place, readers)]
    if not readers or not _heavy(pipeline, readers) or any(_is_parallel(pipeline, p) for p in parents):
        return None
    return Ground(
        f"{waits(evidence)}, {_share(pipeline, readers)} of the pipeline's work is reading "
        f"{pipeline.nodes[readers[0]].call}, one file at a time.",
        ((parents or readers)[0],),
        {"count": str(AT_ONCE)},
        float(AT_ONCE),
    )


def _is_parallel(pipeline: Pipeline, place: int) -> bool:
    return pipeline.nodes[place].name.startswith("Parallel") and (pipeline.nodes[place].parallelism or 1) > 1


def _opens(pipeline: Pipeline, place: int, readers: Sequence[int]) -> bool:
    opens = ("Interleave", "FlatMap", "ParallelInterleave")
    return pipeline.nodes[place].name.startswith(opens) and any(r in pipeline.below(place) for r in readers)


# ---------------------------------------------------------------- cache, staging, files


def repeated_work(evidence: Evidence) -> Ground | None:
    """The same elements are made again in every epoch, none below is random, and memory suffices."""
    return _repeated(evidence, python=False)


def repeated_python(evidence: Evidence) -> Ground | None:
    """As `repeated_work`, though only the author knows whether Python code repeats its results."""
    return _repeated(evidence, python=True)


def _repeated(evidence: Evidence, *, python: bool) -> Ground | None:
    pipeline, free = _own(evidence), evidence.usage.available
    if pipeline is None or free is None or (evidence.epochs or 1) < 2 or _holds(pipeline, "Cache"):
        return None
    place = _deterministic(pipeline)
    if place is None or _runs_python(pipeline, place) != python or not _costs(evidence, pipeline, place):
        return None
    if pipeline.only_moves_memory(place):
        return None
    if not _heavy(pipeline, tuple(pipeline.below(place)), WORTH_CACHING):
        return None
    size = _epoch_bytes(evidence, pipeline, place)
    if size is None or size > FITS * free:
        return None
    node = pipeline.nodes[place]
    return Ground(
        f"{node.call} and what feeds it make the same {_size(size)} in every epoch "
        f"({_share(pipeline, tuple(pipeline.below(place)))} of the pipeline's work), and "
        f"{_size(free)} of memory are free.",
        (place,),
        {"call": node.call},
        float(size),
    )


def _runs_python(pipeline: Pipeline, place: int) -> bool:
    below = [pipeline.nodes[each] for each in pipeline.below(place)]
    return any(node.python or node.name.startswith("Generator") for node in below)


def after_cache(evidence: Evidence, ground: Ground) -> float | None:
    assert evidence.pipeline is not None
    gone = frozenset(evidence.pipeline.below(ground.places[0]))
    saved = evidence.pipeline.seconds_a_batch(tuple(gone))
    return predicted(evidence, Change(without=gone), saved=saved)


def _costs(evidence: Evidence, pipeline: Pipeline, place: int) -> bool:
    """Return whether steps wait for this work, or it takes the cores that the steps need."""
    saved = pipeline.seconds_a_batch(tuple(pipeline.below(place)))
    crowding = evidence.crowded and saved >= 0.15 * (evidence.core_seconds or float("inf"))
    return starved(evidence) or crowding


def _deterministic(pipeline: Pipeline) -> int | None:
    """Return the last node below which nothing is random or endless, prefetches left out; else None."""
    place, nodes = 0, pipeline.nodes
    while nodes[place].inputs:
        if len(nodes[place].inputs) > 1 and place == 0:
            return None
        place = nodes[place].inputs[0]
        unstable = any(
            nodes[below].name.startswith(RANDOM) or nodes[below].draws or "Repeat" in nodes[below].name
            for below in pipeline.below(place)
        )
        if not unstable and not nodes[place].name.startswith(("Prefetch", "Root")):
            return place
    return None


def far_data(evidence: Evidence) -> Ground | None:
    """Reading is the bottleneck, and the data come over the network or from a disk that is at its limit."""
    pipeline = _fed(evidence)
    if pipeline is None:
        return None
    readers = _readers(pipeline) or [p for p, node in enumerate(pipeline.nodes) if not node.inputs]
    size = sum(_epoch_bytes(evidence, pipeline, place) or 0 for place in readers)
    where = _far(evidence)
    if where is None or not size or not _heavy(pipeline, readers):
        return None
    return Ground(
        f"{waits(evidence)}, {_share(pipeline, readers)} of the pipeline's work is reading, and {where}.",
        tuple(readers),
        {"size": f"{rounded(size / 1e9, 3)} GB"},
        float(size),
    )


def after_staging(evidence: Evidence, ground: Ground) -> float | None:
    return predicted(evidence, Change(without=frozenset(ground.places)))


def _far(evidence: Evidence) -> str | None:
    usage, disk = evidence.usage, evidence.usage.disk
    if usage.network and usage.asked and usage.network >= 0.5 * usage.asked:
        return f"{rounded(usage.network / _MIB, 3)} MiB/s come over the network"
    if disk and disk.cap is not None and disk.cap >= AT_ITS_CAP:
        return f"the disk {disk.name} gives {disk.cap:.0%} of what it can ({disk.basis})"
    if disk and usage.reading and disk.read_ms is not None and disk.read_ms >= SLOW_READ_MS:
        return f"a read of the disk {disk.name} takes {disk.read_ms:.0f} ms"
    return None


def many_small_files(evidence: Evidence) -> Ground | None:
    """A map receives names and returns contents: each name is a file of its own, and a small one."""
    pipeline, usage = _fed(evidence), evidence.usage
    if pipeline is None or _readers(pipeline) or not usage.asked or not evidence.steps.per_second:
        return None
    for place, node in enumerate(pipeline.nodes):
        if "Map" not in node.name or not _heavy(pipeline, [place]) or not _takes_names(pipeline, place):
            continue
        a_second = node.elements / pipeline.batches * evidence.steps.per_second
        each = usage.asked / a_second if a_second else 0
        calls = (usage.read_calls or 0) / a_second if a_second else 0
        if 0 < each < SMALL_FILE and 0.5 <= calls <= 20:
            return Ground(
                f"{waits(evidence)}: each element is a file of its own, of {rounded(each / 1024, 3)} KiB on "
                f"average, with {calls:.1f} reads each.",
                (place,),
                {"call": node.call},
                each,
            )
    return None


def _takes_names(pipeline: Pipeline, place: int) -> bool:
    """Return whether the input of a node is short texts, such as names, and its output much larger."""
    node = pipeline.nodes[place]
    given = [pipeline.nodes[input_] for input_ in node.inputs if pipeline.nodes[input_].elements]
    if not given or not node.elements:
        return False
    size = sum(each.bytes / each.elements for each in given)
    return size <= _NAME_BYTES and node.bytes / node.elements >= 4 * size


def slow_generator(evidence: Evidence) -> Ground | None:
    if evidence.training.source == "PyDataset":
        return None
    pipeline = evidence.pipeline if starved(evidence) else None
    places = (
        [p for p, node in enumerate(pipeline.nodes) if node.name.startswith("Generator")] if pipeline else []
    )
    if pipeline is None or not places or not _heavy(pipeline, places):
        return None
    return Ground(
        f"{waits(evidence)}, {_share(pipeline, places)} of the pipeline's work is a Python generator, which "
        "one core runs.",
        tuple(places),
    )


def slow_dataset(evidence: Evidence) -> Ground | None:
    """A PyDataset of Keras has one worker, which makes one batch after the other."""
    training = evidence.training
    if training.source != "PyDataset" or (training.workers or 1) > 1 or not starved(evidence):
        return None
    if evidence.cores < 2:
        return None
    return Ground(
        f"{waits(evidence)}, and one Python thread makes the batches of {training.source_name} one after "
        "another.",
        words={"name": training.source_name or "PyDataset", "count": f"{min(8, int(evidence.cores))}"},
    )


SMALL_CALL = 200e-6
"""Seconds of one call of a function for one example, below which calling is a large part of it."""

SMALL_EXAMPLE = 16 << 10
MANY = 32

WORTH_A_WORD = 0.15
"""Share of a step spent waiting, below which no advice without a predicted gain is given."""


def one_by_one(evidence: Evidence) -> Ground | None:
    """Cheap functions are called for each example, before many examples are joined into a batch."""
    pipeline = _fed(evidence)
    if pipeline is None or (evidence.steps.input_wait or 0.0) < WORTH_A_WORD:
        return None
    places = [place for place in range(len(pipeline.nodes)) if _calls_each(pipeline, place)]
    if not places or not _heavy(pipeline, places):
        return None
    calls = [(pipeline.nodes[place], _given(pipeline, place)) for place in places]
    each = max(node.seconds / count for node, count in calls)
    many = round(max(count for _, count in calls) / pipeline.batches)
    return Ground(
        f"{waits(evidence)}, {_share(pipeline, places)} of the pipeline's work is in .map(…), called "
        f"{many:,} times a batch for {each * 1e6:.0f} µs: much of that is calling.",
        tuple(places),
        {"call": ".map(…)"},
    )


def _calls_each(pipeline: Pipeline, place: int) -> bool:
    node, given = pipeline.nodes[place], _given(pipeline, place)
    if node.plain not in ("Map", "ParallelMap", "MapAndBatch") or node.python or node.draws or not given:
        return False
    small = node.bytes / given <= SMALL_EXAMPLE and node.seconds / given <= SMALL_CALL
    return small and given / pipeline.batches >= MANY


def _given(pipeline: Pipeline, place: int) -> int:
    """Return how many elements a node received."""
    return max((pipeline.nodes[input_].elements for input_ in pipeline.nodes[place].inputs), default=0)


# ---------------------------------------------------------------- what they share


def _readers(pipeline: Pipeline) -> list[int]:
    return [place for place, node in enumerate(pipeline.nodes) if node.name.startswith(READERS)]


def _at_its_cap(evidence: Evidence) -> bool:
    disk = evidence.usage.disk
    return disk is not None and disk.cap is not None and disk.cap >= AT_ITS_CAP


def _holds(pipeline: Pipeline, word: str) -> bool:
    return any(word in node.name for node in pipeline.nodes)


def _work(pipeline: Pipeline) -> float:
    return sum(node.seconds for node in pipeline.nodes)


def _size(count: float) -> str:
    return f"{rounded(count / _GIB, 3)} GiB" if count >= _GIB else f"{rounded(count / _MIB, 3)} MiB"


def _heavy(pipeline: Pipeline, places: Sequence[int], share: float = HEAVY) -> bool:
    return sum(pipeline.nodes[place].seconds for place in places) >= share * max(_work(pipeline), 1e-9)


def _share(pipeline: Pipeline, places: Sequence[int]) -> str:
    return f"{sum(pipeline.nodes[place].seconds for place in places) / max(_work(pipeline), 1e-9):.0%}"


def _epoch_bytes(evidence: Evidence, pipeline: Pipeline, place: int) -> int | None:
    """Return what this node makes in an epoch, in bytes. It is too high by what the node has made ahead,
    if observed early.
    """
    node, steps = pipeline.nodes[place], evidence.epoch_steps
    if steps is None or not node.elements:
        return None
    return round(node.bytes / pipeline.batches * steps)
