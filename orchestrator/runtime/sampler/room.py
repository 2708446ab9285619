"""Verb `room`: print what is free on this machine now, beside what runs on it, as one JSON object."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any, Dict, List

from .. import cgroups
from ..processes import read
from .cpu import cores, meminfo

_LOOK_SECONDS = 0.5
_IDLE = (3, 4)
"""Columns of /proc/stat: idle, and idle while waiting for a disk."""


def main(argv: List[str]) -> int:
    del argv
    print(json.dumps(room()))
    return 0


def room() -> Dict[str, Any]:
    """Return cores and memory that jobs may use here, and how much of each is free; GPUs by name. Bytes."""
    group = cgroups.own()
    limit, total = group.memory_limit(), meminfo("MemTotal") or 0
    allowed = len(os.sched_getaffinity(0))
    usable = min(float(allowed), group.cpu_limit() or float(allowed))
    return {
        "cores": round(usable, 2),
        "cores_free": round(max(0.0, usable - _busy()), 2),
        "memory": min(limit or total, total),
        "memory_free": memory_free(),
        "gpus": _gpus(),
    }


def memory_free() -> int:
    """Return the bytes that a new process may use here."""
    group = cgroups.own()
    limit, free = group.memory_limit(), meminfo("MemAvailable") or 0
    return free if limit is None else min(free, max(0, limit - (group.memory_held() or 0)))


def _busy() -> float:
    """Return the number of busy cores, over half a second."""
    before = cores(read("/proc/stat") or "")
    time.sleep(_LOOK_SECONDS)
    after = cores(read("/proc/stat") or "")
    return sum(_share(before[core], after[core]) for core in os.sched_getaffinity(0) if core in before)


def _share(before: List[int], after: List[int]) -> float:
    grown = [max(0, after[column] - before[column]) for column in range(min(len(before), len(after)))]
    whole = sum(grown)
    return 1 - sum(grown[column] for column in _IDLE) / whole if whole else 0.0


def _gpus() -> List[Dict[str, Any]]:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.split(", ") for line in done.stdout.decode(errors="replace").splitlines()]
    return [
        {"name": row[0], "memory": int(row[1]) << 20, "memory_free": int(row[2]) << 20}
        for row in rows
        if len(row) == 3 and row[1].isdigit() and row[2].isdigit()
    ]
