"""The lines of a trace, by kind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Trace:
    """`header` is {} where there is none; samples are in the order of time."""

    header: Line = field(default_factory=dict)
    samples: Sequence[Line] = ()
    clock: Sequence[Line] = ()
    wall: float | None = None


def read(path: Path) -> Trace:
    """The trace in a file, or an empty one where there is no file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return parse(file.read())
    except FileNotFoundError:
        return Trace()


def parse(text: str) -> Trace:
    """Whatever can be understood of it."""
    lines = [line for line in map(_line, text.splitlines()) if line is not None]
    samples = [line for line in lines if line.get("event") == "sample" and number(line, "up") is not None]
    ended = [line for line in lines if line.get("event") in ("sample", "end")]
    ups = [up for line in ended if (up := number(line, "up")) is not None]
    return Trace(
        header=next((line for line in lines if line.get("event") == "header"), {}),
        samples=sorted(samples, key=lambda line: float(line["up"])),
        clock=[line for line in lines if line.get("event") in ("steps", "first_step", "pulls")],
        wall=max(ups) if ups else None,
    )


def number(line: Line, key: str) -> float | None:
    """The value of a key if it is a number that can be one of ours: finite and not negative."""
    value = line.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < 1e30 and math.isfinite(value) else None


def amount(line: Line, key: str) -> float:
    """The same, and 0 where there is none."""
    return number(line, key) or 0.0


def _line(text: str) -> Line | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
