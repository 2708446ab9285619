"""Find what delays a training's input: the first rule that applies, with its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from orchestrator.model.counted import counted
from orchestrator.stalls.differential import WARM_READS, Differential
from orchestrator.stalls.findings import findings, many_small_files, remedy

ACCUSED = 0.1
"""Minimum share of a step that must be stalled for a bottleneck to be named."""

SURE = 0.05
"""Minimum share that must be stalled after the noise is subtracted."""

CROWD = 4
"""Threads per core from which one stage of a pipeline uses too many."""

WAITING = 0.5
"""Cores that are used or waited for on average: below this, a pipeline waits for something else."""

FULL = 0.8
"""Share of the cores above which all of them count as used."""

OVERLAPS = 1.2
"""Preparation that takes at most this many times a step would be hidden by prefetching."""

REMOTE_SHARE = 0.25
REMOTE_BYTES = 4096
FAULTS = 20.0


@dataclass(frozen=True)
class Named:
    """A bottleneck. `kind`: storage, small files, memory, generator, remote, serial map, threads, decode,
    cores, no prefetch, preparation, or none; `words` for people.

    `findings`: other findings, as (kind, words). `remedy`: what to do if none of the fixes that can be tried
    helps; None if nothing is delayed.
    """

    kind: str
    words: str
    findings: tuple[tuple[str, str], ...] = ()
    remedy: str | None = None

    def as_json(self) -> dict[str, Any]:
        told = [{"kind": kind, "words": words} for kind, words in self.findings]
        return {"kind": self.kind, "words": self.words, "findings": told, "remedy": self.remedy}


def name(differential: Differential) -> Named:
    """Return the bottleneck; "none" if input delays a step by less than a tenth, or not with certainty."""
    kind, words = _kind(differential)
    return Named(
        kind,
        words,
        findings(differential, kind),
        None if of_arrays(differential.calls) else remedy(differential, kind),
    )


def _kind(differential: Differential) -> tuple[str, str]:
    share = differential.stall.share
    sure = differential.stall.seconds - differential.stall.noise >= SURE * differential.actual.seconds
    if not differential.stall.significant or not sure or share < ACCUSED:
        return "none", f"Steps are not held up by their input: {_percent(share)} at most."
    short = _memory(differential)
    if short:
        return "memory", short
    fetch = differential.fetch.seconds if differential.fetch and differential.cold else 0.0
    if fetch >= differential.prep.seconds and differential.cold:
        return _storage(differential)
    return _preparation(differential)


def _percent(share: float) -> str:
    return f"{max(0.0, share):.0%}"


def _memory(differential: Differential) -> str | None:
    """Return a sentence if recently read files are no longer in the page cache, or the job's own pages
    are not; else None.
    """
    warm, cold = differential.timings["warm"], differential.timings.get("cold")
    if warm.faults >= FAULTS:
        return f"Memory is short: {warm.faults:.0f} pages are read back from disk at every step."
    reads = cold is not None and cold.device > 0 and warm.device >= WARM_READS * cold.device
    if not reads or differential.prep.share < ACCUSED:
        return None
    return (
        f"Memory is short: {warm.device / 1e6:.1f} MB of every batch come from the disk again, although "
        "these files were read just before."
    )


def _storage(differential: Differential) -> tuple[str, str]:
    share = _percent(differential.share(differential.fetch) if differential.fetch else 0.0)
    files = many_small_files(differential)
    if files:
        return "small files", f"Reading holds up {share} of a step: {files}."
    speed = differential.storage_bytes or 0.0
    return "storage", f"Reading holds up {share} of a step: the disk gives {speed / 1e6:.1f} MB/s."


def _preparation(differential: Differential) -> tuple[str, str]:
    share = _percent(differential.share(differential.prep))
    pull = differential.timings.get("pull") or differential.timings["warm"]
    said = f"Preparing batches holds up {share} of a step"
    crowd = crowded(differential)
    if crowd:
        return "threads", f"{said}: {crowd} threads are asked for on {counted(differential.cores, 'core')}."
    busiest = busiest_call(differential)
    works = busiest["words"] if busiest else "the pipeline"
    works = "Keras' own gathering of batches" if of_arrays(differential.calls) else works
    source = differential.source.get("source")
    if source == "PyDataset":
        workers = differential.source.get("workers") or 1
        hands = "one thread" if workers == 1 else f"{workers} {_hands(differential.source)}"
        return (
            "generator",
            f"{said}: {differential.source.get('source_name')}, a PyDataset, makes them in {hands}.",
        )
    if pull.seconds <= OVERLAPS * differential.ideal and not ahead(differential):
        return "no prefetch", f"{said}, although it takes no longer than a step: nothing is prepared ahead."
    if pull.cpu + pull.waited < WAITING * pull.seconds:
        network = _network(differential)
        if pull.connected and network >= REMOTE_SHARE * max(REMOTE_BYTES, differential.batch_bytes):
            rate = network / pull.seconds / 1e6
            return "remote", f"{said}: it waits for the network ({rate:.1f} MB/s), one request after another."
        if busiest and busiest["call"] == "from_generator":
            return "generator", f"{said}: a Python generator gives one example after another."
        return (
            "serial map" if serial(busiest) else "preparation"
        ), f"{said}: {works} waits, and cores are idle."
    if busiest and busiest["call"] == "from_generator":
        return "generator", f"{said}: a Python generator makes one example after another."
    if serial(busiest) and differential.actual.cpu < FULL * differential.cores * differential.actual.seconds:
        return "serial map", f"{said}: {works} makes one element after another."
    if busiest and any(_decodes(name) for name in busiest["operations"]):
        return "decode", f"{said}: {works} takes all cores that are free."
    if full(differential):
        others = differential.actual.others
        beside = f", of which others kept {others:.1f} busy," if differential.actual.busy else ""
        return (
            "cores",
            f"{said}: {differential.cores} cores{beside} are not enough for {works} and the step together.",
        )
    return ("serial map" if serial(busiest) else "preparation"), f"{said}: {works} takes longest."


def _hands(source: Mapping[str, Any]) -> str:
    return "processes" if source.get("processes") else "threads"


def _network(differential: Differential) -> float:
    """Return the bytes received from the network for one batch, less those received without input."""
    pull, idle = (
        differential.timings.get("pull") or differential.timings["warm"],
        differential.timings["synthetic"],
    )
    return max(0.0, pull.network - 1.5 * idle.network * pull.seconds / idle.seconds)


def _decodes(operation: str) -> bool:
    """Return whether an operation decodes images, sound or compressed text; reinterpreting raw bytes does
    not count.
    """
    return "Decode" in operation and not operation.endswith("Raw")


def crowded(differential: Differential) -> int | None:
    """Return the threads that one stage uses, if they are far more than the cores."""
    asked = [call.get("num_parallel_calls") or 0 for call in differential.calls]
    asked += [call.get("private_threadpool") or 0 for call in differential.calls]
    most = max(asked, default=0)
    return most if most >= CROWD * differential.cores and most >= 16 else None


def ahead(differential: Differential) -> bool:
    """Return whether the last stage of the pipeline prefetches."""
    for call in differential.calls:
        if call["call"] in ("with_options", "repeat"):
            continue
        return bool(call["call"] == "prefetch")
    return False


def full(differential: Differential) -> bool:
    """Return whether input and step together used all available cores."""
    actual = differential.actual
    return (actual.cpu + actual.waited) / actual.seconds >= FULL * differential.cores


def serial(call: Mapping[str, Any] | None) -> bool:
    return call is not None and call["call"] == "map" and call.get("num_parallel_calls") in (None, 1)


_NODES = {
    "map": ("Map", "ParallelMap", "MapAndBatch", "ParallelMapAndBatch"),
    "interleave": ("Interleave", "ParallelInterleave"),
    "flat_map": ("FlatMap",),
    "filter": ("Filter",),
    "batch": ("Batch", "ParallelBatch"),
    "padded_batch": ("PaddedBatch",),
    "shuffle": ("Shuffle",),
    "from_generator": ("Generator",),
}


def node_seconds(differential: Differential, calls: tuple[str, ...]) -> float | None:
    """Return the seconds per batch that tf.data measured in nodes of these calls; None if it measured
    none.
    """
    if not differential.nodes or not differential.node_batches:
        return None
    wanted = {name for call in calls for name in _NODES.get(call, ())}
    total = sum(float(node["s"]) for node in differential.nodes if _plain(str(node["name"])) in wanted)
    return total / differential.node_batches


def _plain(name: str) -> str:
    return name.rstrip("0123456789").removesuffix("V")


def of_arrays(calls: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether Keras built the pipeline from arrays given to `fit`: it zips indices with them and
    gathers.
    """
    gathers = any(call["call"] == "map" and "GatherV2" in (call.get("operations") or ()) for call in calls)
    zips = any(call["call"] == "zip" for call in calls)
    return gathers and zips and not any(call.get("site") for call in calls)


def busiest_call(differential: Differential) -> dict[str, Any] | None:
    """Return the call that took most of the time by tf.data's statistics, as {call, operations,
    num_parallel_calls, words, site}.

    Without statistics, the likeliest one: a generator, then a map without parallel calls. None if there is
    none.
    """
    kinds = {kind: seconds for kind in _NODES if (seconds := node_seconds(differential, (kind,)))}
    if kinds:
        kind = max(kinds, key=lambda each: kinds[each])
        call = next((call for call in differential.calls if call["call"] == kind), None)
    else:
        call = max(differential.calls, key=_likely, default=None)
    return None if call is None or (not kinds and not _likely(call)) else _worded(call)


def _likely(call: Mapping[str, Any]) -> int:
    python = any("PyFunc" in name for name in call.get("operations") or ())
    works = call["call"] in ("map", "flat_map", "interleave")
    generator = call["call"] == "from_generator"
    return 4 * int(generator) + 2 * int(serial(call)) + int(works) + int(works and python)


def _worded(call: Mapping[str, Any]) -> dict[str, Any]:
    operations = list(call.get("operations") or ())
    telling = [name for name in operations if name not in _DULL][:3]
    words = f"{call['call']}({', '.join(telling)})" if telling else str(call["call"])
    site = call.get("site")
    where = f" ({PurePath(str(site[0])).name}:{site[1]})" if site else ""
    return {**call, "operations": operations, "words": words + where}


_DULL = (
    "Pack",
    "Shape",
    "StridedSlice",
    "Squeeze",
    "Unpack",
    "ExpandDims",
    "Mul",
    "Sub",
    "RealDiv",
    "Transpose",
)
