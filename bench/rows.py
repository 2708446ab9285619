"""Rows of bench/RESULTS.md, as benches report them.

A bench that `scripts/bench` runs finds in ORCH_BENCH_ROWS the file for its rows, one JSON object a line; a
later line replaces an earlier one of the same key. Each row is written as soon as it is known: what fails
later does not lose it. ORCH_BENCH_ONLY names the rows that are wanted, and the others are not reported;
without it, all are wanted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence


def wanted(*keys: str) -> bool:
    """Whether one of these rows is wanted."""
    only = os.environ.get("ORCH_BENCH_ONLY", "")
    return not only or not set(keys).isdisjoint(only.split(","))


def note(key: str, values: Sequence[float], detail: str = "") -> None:
    """Report what each round measured for row `key` of scripts/bench_rows.py. `detail`: a sentence or two,
    such as where the time goes.
    """
    if (place := os.environ.get("ORCH_BENCH_ROWS")) and wanted(key):
        with open(place, "a") as file:
            file.write(json.dumps({"key": key, "values": list(values), "detail": detail}) + "\n")


def absent(key: str, why: str) -> None:
    """Report that a row cannot be measured here; `why` is a sentence."""
    print(f"{key}: not measured: {why}", flush=True)
    note(key, (), why)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Each round's ratio: its two sides met the same load."""
    return [mine / hand for mine, hand in zip(ours, theirs, strict=True)]
