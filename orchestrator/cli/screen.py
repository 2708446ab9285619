"""The width and colours of standard output."""

from __future__ import annotations

import os
import shutil
import sys

WIDEST = 100
"""Columns: longer lines of prose are hard to read."""


def screen() -> tuple[int, bool]:
    """Columns (80 if stdout is no terminal), and whether to use colours: on a terminal that has them,
    unless NO_COLOR is set (see no-color.org)."""
    terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size((80, 24)).columns if terminal else 80
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "dumb") == "dumb"
    return min(columns, WIDEST), terminal and not plain
