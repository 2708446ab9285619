"""The content of feeding.json, as a scratch run wrote it, with every value checked. See
runtime/stalls/measure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from orchestrator.model.answers import Between, Count, Malformed, Most, parsed, value
from orchestrator.model.files import regular_bytes

MOST_BYTES = 1 << 24

_KINDS = ("keyword", "after", "before")

Word = Annotated[str, Most(4096)]
Amount = Annotated[float, Between(-1e18, 1e18)]
Size = Annotated[int, Between(-(1 << 62), 1 << 62)]
Small = Annotated[int, Between(-(1 << 31), 1 << 31)]


class _Mode(TypedDict):
    mode: Word


class Window(_Mode, total=False):
    """One window: totals of its steps. Seconds, bytes, calls."""

    round: Small
    steps: Annotated[int, Between(0, 1e9)] | None
    wall: Annotated[float, Between(0, 1e9)] | None
    first: Annotated[float, Between(0, 1e9)]
    opened: Count
    threads: Annotated[int, Between(0, 1e9)]
    connections: Count
    cpu: Amount
    waited: Amount
    device: Amount
    asked: Amount
    calls: Amount
    faults: Amount
    network: Amount
    machine: Amount


class _Call(TypedDict):
    call: Word


class Call(_Call, total=False):
    """A call that makes the pipeline. `site`: file and line."""

    num_parallel_calls: Small | None
    private_threadpool: Small | None
    buffer_size: Size | None
    operations: list[Word] | None
    elements: Size | None
    site: tuple[Word, Count] | None


class _Place(TypedDict):
    file: Word
    line: Annotated[int, Between(0, 1 << 31)]
    call: Word


class Edit(_Place, total=False):
    """A change of a script, of one of three kinds."""

    keyword: Word
    after: Word
    before: Word


class Same(TypedDict, total=False):
    """Whether a fix gives the same batches."""

    same: Word | None
    batches: Count | None
    why: Word | None


class _Name(TypedDict):
    name: Word


class Fixed(_Name, total=False):
    """A fix that was tried."""

    edits: list[Edit] | None
    parity: Same | None
    elements: Size | None
    bytes: Size | None
    files: Count | None
    folder: Word | None
    cores: Small | None
    parallel: Small | None
    rate: Annotated[float, Between(0, 1e18)] | None
    calls: Small | None
    threads: Small | None
    above: list[Word] | None


class _Work(TypedDict):
    name: Word
    s: Annotated[float, Between(0, 1e12)]


class Node(_Work, total=False):
    """One node of tf.data's statistics."""

    n: Count | None
    bytes: Count | None
    buffered: Size | None
    copies: Count | None
    inputs: list[Annotated[int, Between(0, 1 << 20)]] | None
    parallelism: Size | None
    buffer: Size | None
    python: bool | None
    draws: bool | None


class Pipeline(TypedDict, total=False):
    """The statistics of tf.data for one window."""

    batches: Count | None
    nodes: list[Node] | None


class Source(TypedDict, total=False):
    """What Keras built the pipeline from."""

    source: Word | None
    source_name: Word | None
    workers: Annotated[int, Between(0, 1 << 20)] | None
    processes: bool | None


class Result(TypedDict, total=False):
    """The complete content of feeding.json."""

    v: Small
    python: Word | None
    unmeasured: Word | None
    windows: Annotated[list[Window], Most(100_000)] | None
    notes: list[Word] | None
    loop: Word | None
    source: Source | None
    steps_per_call: Annotated[int, Between(0, 1 << 31)] | None
    tensorflow: Word | None
    cores: Annotated[int, Between(0, 1 << 20)] | None
    gpus: Annotated[int, Between(0, 1 << 20)] | None
    calls: list[Call] | None
    steps: Count | None
    batch_bytes: Count | None
    batch: Annotated[int, Between(0, 1 << 40)] | None
    files: Count | None
    file_bytes: Count | None
    pipeline: Pipeline | None
    trace: Word | None
    stalls: bool | None
    base: Word | None
    fixes: list[Fixed] | None
    cardinality: Size | None


def read_result(path: Path) -> Mapping[str, Any]:
    """Return what a scratch run measured; {} if there is no file. Raises Malformed."""
    try:
        found: Any = value(Result, parsed(regular_bytes(path, MOST_BYTES), most=MOST_BYTES))
        _check_pipeline((found.get("pipeline") or {}).get("nodes") or ())
        _check_edits(edit for fix in found.get("fixes") or () for edit in fix.get("edits") or ())
    except FileNotFoundError:
        return {}
    except Malformed as error:
        raise Malformed(f"{path.name} is not a valid measurement: {error}") from None
    result: Mapping[str, Any] = found
    return result


def _check_pipeline(nodes: Sequence[Mapping[str, Any]]) -> None:
    for node in nodes:
        if any(place >= len(nodes) for place in node.get("inputs") or ()):
            raise Malformed(".pipeline.nodes has an input that is not in the list")


def _check_edits(edits: Any) -> None:
    if not all(sum(kind in edit for kind in _KINDS) == 1 for edit in edits):
        raise Malformed(".fixes has an edit without a text to write")
