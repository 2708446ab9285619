"""Relative speed of GPUs by NVIDIA's data sheets: a first estimate, and reported as one."""

from __future__ import annotations

import re
from typing import NamedTuple


class Sheet(NamedTuple):
    """Memory bandwidth in GB/s, and 10¹² float32 operations a second outside of tensor cores."""

    bandwidth: float
    float32: float


SHEETS = {
    "K80": Sheet(240, 4.1),
    "P4": Sheet(192, 5.5),
    "P100": Sheet(732, 9.3),
    "V100": Sheet(900, 15.7),
    "T4": Sheet(320, 8.1),
    "A10G": Sheet(600, 31.2),
    "L4": Sheet(300, 30.3),
    "L40S": Sheet(864, 91.6),
    "A100": Sheet(1555, 19.5),
    "A100-80GB": Sheet(2039, 19.5),
    "H100": Sheet(3350, 67.0),
    "H200": Sheet(4800, 67.0),
}
"""By the catalog's names. K80 is one of its two halves; H100 and A100 are those with SXM sockets."""


def sheet_of(name: str) -> Sheet | None:
    """Return the data of a GPU by any of its names (`T4`, `Tesla T4`, `NVIDIA A100-SXM4-80GB`); None if
    it is unknown.
    """
    words = name.upper()
    if "A100" in words and "80GB" in words:
        return SHEETS["A100-80GB"]
    found = [known for known in SHEETS if re.search(rf"(?<![A-Z0-9]){known}(?![0-9A-FH-Z])", words)]
    return SHEETS[max(found, key=len)] if found else None


def slower(now: str, then: str) -> tuple[float, float] | None:
    """Return how many times as long (at best, at worst) the work of GPU `now` takes on GPU `then`; None if
    not known.

    Work that moves memory scales with bandwidth, work that computes scales with operations; the truth lies
    between the two.
    """
    if now.upper() == then.upper():
        return 1.0, 1.0
    before, after = sheet_of(now), sheet_of(then)
    if before is None or after is None:
        return None
    ratios = sorted((before.bandwidth / after.bandwidth, before.float32 / after.float32))
    return ratios[0], ratios[1]
