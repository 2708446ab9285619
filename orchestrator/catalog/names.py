"""Unify the names that clouds give to accelerators. Pure functions."""

from __future__ import annotations

import re

GIB = 1 << 30
_SAME = {"RTX-PRO-SERVER-6000": "RTX-PRO-6000"}


def accelerator_name(given: str, memory: int) -> str:
    """Return the unified name: `T4g` → T4G, `nvidia-tesla-t4` → T4, `nvidia-h100-80gb` → H100, `A100` of 80
    GiB → A100-80GB.

    `memory`: of each accelerator, in bytes; 0 if unknown.
    """
    bare = re.sub(r"^NVIDIA-(TESLA-)?|-VWS$", "", given.strip().upper().replace(" ", "-"))
    bare = re.sub(r"^(H100)(-MEGA)?-80GB$|^(H200)-141GB$", r"\1\2\3", bare)
    bare = _SAME.get(bare, bare)
    return "A100-80GB" if bare == "A100" and memory > 60 * GIB else bare
