"""Format a number with its noun, and a list of names, for people: 1 file, 1,024 files; a, b and 7 more."""

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
