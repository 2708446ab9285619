"""Format a number with its noun, for people: 1 file, 2 files, 1,024 files."""

from __future__ import annotations


def counted(count: int | float, noun: str, nouns: str | None = None) -> str:
    """Return `count` with the noun in singular or plural; `nouns`: the plural, if it is not `noun` with
    an s.
    """
    shown = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{shown} {noun if count == 1 else nouns or noun + 's'}"
