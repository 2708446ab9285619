"""Format numbers for people. Sizes are powers of 1024, as memory and disks of machines are sold."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

WIDTH = 80
"""Columns of what is printed: those of the narrowest terminal that people use."""


def size(count: float | None) -> str:
    """1536 → "1.5 KiB"; None → "unknown"."""
    if count is None:
        return "unknown"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def duration(seconds: float | None) -> str:
    """0.42 → "0.4 s"; 5400 → "1 h 30 min"; None → "unknown"."""
    if seconds is None:
        return "unknown"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def money(dollars: float) -> str:
    """Format dollars: in cents, or with four decimals below ten cents so that small amounts are not shown as
    0.
    """
    if dollars == 0:
        return "$0.00"
    return f"${dollars:.2f}" if dollars >= 0.1 else f"${dollars:.4f}"


def share(part: float | None) -> str:
    return "unknown" if part is None else f"{part * 100:.0f}%"


def table(rows: list[list[str]], *, indent: str = "", fit: int | None = None) -> str:
    """Left-aligned columns, two spaces apart; the first row is the heading.

    With `fit`, the widest column is wrapped so that a line has at most that many characters.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if fit is not None:
        excess = len(indent) + sum(widths) + 2 * (len(widths) - 1) - fit
        widest = widths.index(max(widths))
        widths[widest] -= max(0, excess)
    lines = (line for row in rows for line in _lines(row, widths))
    return "\n".join((indent + line).rstrip() for line in lines)


def columns_table(columns: Sequence[tuple[str, str]], *, indent: str = "") -> str:
    """One row of values under their names; in several tables, one below the other, if WIDTH is exceeded."""
    rows: list[list[tuple[str, str]]] = [[]]
    left = WIDTH - len(indent)
    for name, text in columns:
        width = max(len(name), len(text)) + 2
        if rows[-1] and width - 2 > left:
            rows.append([])
            left = WIDTH - len(indent)
        rows[-1].append((name, text))
        left -= width
    tables = ([list(each) for each in zip(*row, strict=True)] for row in rows if row)
    return "\n".join(table(each, indent=indent) for each in tables)


def wrapped(begin: str, text: str) -> list[str]:
    """Return `text` after `begin`, in lines of at most WIDTH columns; words and paths are not cut."""
    lines = []
    for line in text.splitlines() or [""]:
        lines += textwrap.wrap(
            line,
            WIDTH,
            initial_indent=begin,
            subsequent_indent=" " * len(begin),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [begin.rstrip()]
        begin = " " * len(begin)
    return lines


def _lines(row: list[str], widths: list[int]) -> Iterator[str]:
    """The lines of one row; a cell that is too wide continues below itself."""
    cells = [
        textwrap.wrap(cell, width, subsequent_indent="  ") if len(cell) > width else [cell]
        for cell, width in zip(row, widths, strict=True)
    ]
    for parts in zip_longest(*cells, fillvalue=""):
        yield "  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True))
