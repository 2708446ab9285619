"""Format numbers, a number with its noun, and a list of names, for people: 1,024 files; a, b and 7 more."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 5


def counted(count: int | float, noun: str, nouns: str | None = None) -> str:
    """Return `count` with the noun in singular or plural; `nouns`: the plural, if it is not `noun` with
    an s.
    """
    shown = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{shown} {noun if count == 1 else nouns or noun + 's'}"


def few(paths: Sequence[str]) -> str:
    """Return the first of some paths, and the number of others."""
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


def rounded(value: float, digits: int) -> str:
    """Return `value` with that many significant digits and without an exponent: 0.25, 37,253."""
    shown = f"{value:.{digits}g}"
    return shown if abs(float(shown)) < 10**digits else f"{value:,.0f}"
