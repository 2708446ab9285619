"""Read values of a record that a machine may have written: with the requested type, short, and as plain
text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.model.plain import plain

LONGEST = 2_000
MOST = 500
"""Elements of a list that are looked at."""


def text(value: object, most: int = LONGEST) -> str:
    """Return `value` as plain text of at most `most` characters; "" for None."""
    if value is None:
        return ""
    shown = plain(value[: 4 * most] if isinstance(value, str) else str(value)[: 4 * most])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def line(value: object, most: int = 300) -> str:
    """Return `value` as `text` does, on one line."""
    return " ".join(text(value, most).split())


def number(value: object) -> float | None:
    """Return a finite number; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def count(value: object) -> int | None:
    """Return a non-negative integer; None for any other value."""
    found = number(value)
    return int(found) if found is not None and found >= 0 else None


def mapping(value: object) -> Mapping[str, Any]:
    """Return an object; {} for any other value."""
    return value if isinstance(value, Mapping) else {}


def items(value: object, most: int = MOST) -> Sequence[Any]:
    """Return the first elements of a list; () for any other value."""
    return list(value[:most]) if isinstance(value, list | tuple) else ()


def mappings(value: object, most: int = MOST) -> Iterator[Mapping[str, Any]]:
    """Return the objects among the first elements of a list."""
    return (each for each in items(value, most) if isinstance(each, Mapping))


def length(value: object) -> int:
    return len(value) if isinstance(value, list | tuple) else 0
