"""Values of a record that a machine may have written: of the type that is asked for, short, plain text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.model.plain import plain

LONGEST = 2_000
MOST = 500
"""Elements of a list that are looked at."""


def text(value: object, most: int = LONGEST) -> str:
    """`value` as plain text of at most `most` characters; "" for None."""
    if value is None:
        return ""
    shown = plain(value[: 4 * most] if isinstance(value, str) else str(value)[: 4 * most])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def line(value: object, most: int = 300) -> str:
    """The same, on one line."""
    return " ".join(text(value, most).split())


def number(value: object) -> float | None:
    """A finite number; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def count(value: object) -> int | None:
    """A whole number that is not negative."""
    found = number(value)
    return int(found) if found is not None and found >= 0 else None


def mapping(value: object) -> Mapping[str, Any]:
    """An object; {} for everything else."""
    return value if isinstance(value, Mapping) else {}


def items(value: object, most: int = MOST) -> Sequence[Any]:
    """The first elements of a list; () for everything else."""
    return list(value[:most]) if isinstance(value, list | tuple) else ()


def mappings(value: object, most: int = MOST) -> Iterator[Mapping[str, Any]]:
    """The objects among the first elements of a list."""
    return (each for each in items(value, most) if isinstance(each, Mapping))


def length(value: object) -> int:
    return len(value) if isinstance(value, list | tuple) else 0
