"""The lines of a trace, by kind."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.model.answers import Malformed
from orchestrator.model.files import open_regular

Line = Mapping[str, Any]

VERSION = 1
"""The version of the traces that are understood. Additions keep it; a change of meaning raises it."""

MOST = 10_000
"""Lines of a kind that are read. If there are more, evenly spread ones are: each holds totals, so only
detail is lost.
"""

_KIND = b'"event":'
_LONG = len(_KIND) + 2
_WITHIN = 120
"""A line states its kind within so many bytes of its beginning."""

_LONGEST_LINE = 1 << 22
_UNKNOWN = 1 << 12
"""Bytes that are kept of a line without a kind: such a line is counted, never used."""

_MOST_BYTES = 1 << 30
"""Bytes that are read of a trace; the rest is ignored."""


@dataclass(frozen=True)
class Trace:
    """The lines of a trace. `header` is {} if there is none; samples are in the order of time."""

    header: Line = field(default_factory=dict)
    samples: Sequence[Line] = ()
    clock: Sequence[Line] = ()
    pipelines: Sequence[Line] = ()
    models: Sequence[Line] = ()
    pauses: Sequence[Line] = ()
    alarms: Sequence[Line] = ()
    wall: float | None = None
    peak: float | None = None
    """Bytes of the largest process, as counted by the kernel and reported at the end; samples may have
    missed it.
    """
    skipped: int = 0
    """Lines that were read and are not records."""


def read(path: Path) -> Trace:
    """Return the trace in a file; an empty one if there is no regular file."""
    try:
        with open_regular(path) as file:
            return parse(_lines(file))
    except (FileNotFoundError, Malformed):
        return Trace()


def _lines(file: BinaryIO) -> Iterator[bytes]:
    left = _MOST_BYTES
    while left > 0 and (line := file.readline(min(left, _LONGEST_LINE))):
        left -= len(line)
        yield line


def parse(raw: Iterable[bytes]) -> Trace:
    """Return the trace in these lines, as far as it can be understood."""
    parsed = list(_understood(raw))
    lines = [line for line in parsed if line is not None]
    samples = [line for line in lines if line.get("event") == "sample" and number(line, "up") is not None]
    ended = [line for line in lines if line.get("event") in ("sample", "end")]
    peaks = [peak for line in ended if (peak := number(line, "peak")) is not None]
    ups = [up for line in ended if (up := number(line, "up")) is not None]
    return Trace(
        header=next((line for line in lines if line.get("event") == "header"), {}),
        samples=sorted(samples, key=lambda line: float(line["up"])),
        clock=[line for line in lines if line.get("event") in ("steps", "first_step", "pulls")],
        pipelines=[line for line in lines if line.get("event") == "pipeline"],
        models=[line for line in lines if line.get("event") == "model"],
        alarms=[line for line in lines if line.get("event") == "alarm"],
        pauses=[line for line in lines if line.get("event") == "pauses"],
        wall=max(ups) if ups else None,
        peak=max(peaks) if peaks else None,
        skipped=len(parsed) - len(lines),
    )


def number(line: Line, key: str) -> float | None:
    """Return the value of a key if it is a valid number: finite and not negative; else None."""
    value = line.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < 1e30 and math.isfinite(value) else None


def amount(line: Line, key: str) -> float:
    """Return the same, and 0 if there is no valid number."""
    return number(line, key) or 0.0


class _Spread:
    """Keeps up to twice MOST of the lines that are added, evenly spread, and always the last."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.last = b""
        self.stride = 1
        self.left = 0

    def add(self, line: bytes) -> None:
        self.kept.append(line)
        if len(self.kept) == 2 * MOST:
            self.kept = self.kept[::2]
            self.stride *= 2
        self.left = self.stride - 1

    def lines(self) -> Iterator[bytes]:
        yield from self.kept
        if self.kept and self.kept[-1] is not self.last:
            yield self.last


def _understood(raw: Iterable[bytes]) -> Iterator[Line | None]:
    kinds: dict[bytes, _Spread] = {}
    for text in raw:
        at = text.find(_KIND, 0, _WITHIN)
        kind = text[at : text.find(b'"', at + _LONG)] if at >= 0 else b""
        if not kind:
            text = text[:_UNKNOWN]
        spread = kinds.get(kind)
        if spread is None:
            spread = kinds[kind] = _Spread()
        spread.last = text
        if spread.left:
            spread.left -= 1
        else:
            spread.add(text)
    for spread in kinds.values():
        yield from map(_line, spread.lines())


def _line(text: bytes) -> Line | None:
    try:
        value = json.loads(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
