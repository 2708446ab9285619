"""Rows of bench/RESULTS.md, as benches report them.

A bench that `scripts/bench` runs finds in ORCH_BENCH_ROWS the file for its rows, one JSON object a line. Each
row is written as soon as it is known: what fails later does not lose it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence


def note(key: str, values: Sequence[float], detail: str = "") -> None:
    """Report what each round measured for row `key` of scripts/bench_results.py. `detail`: one sentence, such
    as where the time goes.
    """
    if place := os.environ.get("ORCH_BENCH_ROWS"):
        with open(place, "a") as file:
            file.write(json.dumps({"key": key, "values": list(values), "detail": detail}) + "\n")


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Each round's ratio: its two sides met the same load."""
    return [mine / hand for mine, hand in zip(ours, theirs, strict=True)]
