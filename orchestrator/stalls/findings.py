"""Findings beside the bottleneck, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.model.counted import counted
from orchestrator.stalls.differential import Differential

MIXED = 8
"""A shuffle buffer with less than the n-th part of the examples hardly mixes them."""

LONG_FIRST = 0.1
"""If the first batch takes at least this share of an epoch, that is reported."""

NOTICED = 0.1
SMALL_FILE = 1 << 20
MANY = 32
SMALL_CALL = 200e-6
"""If a function takes at most this many seconds for an example, the call itself is a large part of that."""

Finding = tuple[str, str]


def findings(differential: Differential, kind: str) -> tuple[Finding, ...]:
    """Return other findings than the bottleneck `kind`, as (kind, words)."""
    return (
        *_mixes(differential),
        *_first(differential),
        *_reading(differential, kind),
        *_single(differential, kind),
    )


def many_small_files(differential: Differential) -> str | None:
    """Return the finding about many small files, if many are read."""
    mean = differential.file_bytes / differential.files if differential.files else 0.0
    if differential.files < max(64, differential.batch or 0) or mean >= SMALL_FILE:
        return None
    return f"{differential.files:,} files of {mean / 1024:.0f} KiB on average, each opened by itself"


def _mixes(differential: Differential) -> Iterator[Finding]:
    for call in differential.calls:
        buffer, size = call.get("buffer_size"), call.get("elements") or 0
        if call["call"] == "shuffle" and buffer and size >= 256 and buffer * MIXED <= size:
            yield (
                "shuffle",
                f"shuffle({buffer:,}) mixes {size:,} examples hardly at all: neighbours stay so.",
            )


def _first(differential: Differential) -> Iterator[Finding]:
    """Return the finding about the first batch, if the number of batches per epoch is known."""
    batches = differential.facts.get("cardinality") or 0
    first = differential.timings["warm"].first - differential.timings["warm"].seconds
    epoch = first + batches * differential.actual.seconds
    if batches <= 1 or first < LONG_FIRST * epoch:
        return
    buffer = max(
        (call.get("buffer_size") or 0 for call in differential.calls if call["call"] == "shuffle"), default=0
    )
    why = f": shuffle({buffer:,}) fills first" if buffer > (differential.batch or 1) else ""
    yield (
        "first batch",
        f"The first batch takes {first / epoch:.0%} of an epoch of {counted(batches, 'step')}{why}.",
    )


def _reading(differential: Differential, kind: str) -> Iterator[Finding]:
    fetch = differential.fetch
    told = kind in ("storage", "small files", "memory")
    if fetch is None or not differential.cold or differential.share(fetch) < NOTICED or told:
        return
    files = many_small_files(differential)
    share = f"{differential.share(fetch):.0%}"
    what = f": {files}" if files else ""
    yield (
        ("small files" if files else "storage"),
        f"Reading files that are not in memory holds up {share} of a step{what}.",
    )


def _single(differential: Differential, kind: str) -> Iterator[Finding]:
    """Return the functions called for each example that are so short that the call itself is a large part."""
    if kind == "none" or not differential.node_batches:
        return
    nodes = differential.nodes
    for node in nodes:
        given = max((int(nodes[place].get("n") or 0) for place in node.get("inputs") or ()), default=0)
        maps = "Map" in str(node["name"]) and "Flat" not in str(node["name"])
        if not maps or given < MANY * differential.node_batches or node.get("python") or node.get("draws"):
            continue
        each = float(node["s"]) / given
        if each <= SMALL_CALL and float(node["s"]) >= NOTICED * sum(float(one["s"]) for one in nodes):
            yield (
                "batch first",
                f"A map is called {round(given / differential.node_batches):,} times a batch, for "
                f"{each * 1e6:.0f} µs: with .batch(…) before .map(…) it is called once.",
            )
            return


# ---------------------------------------------------------------- what to do


def remedy(differential: Differential, kind: str) -> str | None:
    """Return what the author of the script can do if no fix that was tried helps; None without a
    bottleneck.
    """
    if kind == "generator":
        return _of_python(differential)
    if kind in ("cores", "decode") and differential.actual.busy:
        return f"measure again while nothing else runs here; {_REMEDIES[kind]}."
    said = _REMEDIES.get(kind)
    return f"{said}." if said else None


def _of_python(differential: Differential) -> str:
    name = differential.source.get("source_name")
    if name and int(differential.source.get("workers") or 1) == 1:
        return (
            f"give {name} workers: super().__init__(workers={max(2, min(8, differential.cores))}), with "
            "use_multiprocessing=True where its code is Python's own."
        )
    if name:
        return f"make the examples of {name} once, and keep them in TFRecord files; or take more cores."
    return (
        "make the examples with tf.data operations, write them to TFRecord files once, or hand `fit` a "
        "keras.utils.PyDataset with workers."
    )


_REMEDIES = {
    "storage": "bring the files to a faster disk, or make them smaller",
    "small files": "pack the files into TFRecord files of about 100 MB",
    "memory": "take more memory, or smaller buffers and batches",
    "remote": "bring the data to the machine, or ask for several at once: num_parallel_calls",
    "serial map": "do less for each example, before training where it is always the same",
    "threads": "ask for as many threads as there are cores: tf.data.AUTOTUNE",
    "decode": "keep pictures decoded or smaller, or take more cores",
    "cores": "do less for each example, before training where it is always the same, or take more cores",
    "preparation": "do less for each example, before training where it is always the same",
    "no prefetch": "end the pipeline with .prefetch(tf.data.AUTOTUNE)",
}
