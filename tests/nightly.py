"""Long tables of tests: a sample of their rows runs always, every row by `scripts/test nightly`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

NIGHTLY = os.environ.get("ORCH_TEST_NIGHTLY") == "1"
"""Whether this is the run of everything."""


def sampled(rows: Iterable[Any], always: Callable[[Any], bool]) -> list[Any]:
    """Parameters for each of `rows`; those that are not for `always` are marked for the nightly run."""
    return [row if always(row) else _at_night(row) for row in rows]


def _at_night(row: Any) -> Any:
    """The same parameter, with the mark; one that is a ParameterSet keeps its id and its marks."""
    if hasattr(row, "marks"):
        return row._replace(marks=(*row.marks, pytest.mark.nightly))
    values = row if isinstance(row, tuple) else (row,)
    return pytest.param(*values, marks=pytest.mark.nightly)
