"""The syntax tree of Python source."""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()


def tree_of(source: str | bytes) -> ast.Module:
    """Parse the source. Raises SyntaxError, ValueError, RecursionError and MemoryError, as ast.parse does.

    One thread at a time: CPython before 3.11.5 counts the depth of the trees that all threads build in one
    place, and raises SystemError where they meet.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source)
