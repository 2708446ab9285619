"""Facts of a run's surroundings: processor, language, time zone, folder. Standard library only."""

from __future__ import annotations

import json
import locale
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping

CPU_FLAGS = tuple(
    name
    for line in (
        "sse4_1 sse4_2 avx avx2 fma avx_vnni avx512f avx512bw avx512vl avx512_vnni avx512_bf16 avx512_fp16",
        "amx_tile amx_bf16 amx_int8 asimd asimddp sve sve2 bf16 i8mm",
    )
    for name in line.split()
)
"""Instruction sets by which math libraries select their kernels."""


def surroundings() -> Dict[str, Any]:
    """Return python, platform, cpu, locale, timezone, hashing and folder, as described in `facts`."""
    return {
        "python": platform.python_version(),
        "platform": {
            "system": platform.system(),
            "machine": platform.machine(),
            "libc": platform.libc_ver()[1],
        },
        "cpu": {
            "count": cpu_count(),
            "installed": os.cpu_count(),
            "affinity": _affinity(),
            "flags": _cpu_flags(),
            "model": _cpu_field("model name"),
        },
        "locale": read_all(_LOCALE),
        "timezone": read_all(_TIMEZONE),
        "hashing": {
            "randomized": bool(sys.flags.hash_randomization),
            "seed": os.environ.get("PYTHONHASHSEED", "random"),
            "sample": hash("orch"),
        },
        "folder": {"case_sensitive": reading(_case_sensitive)},
    }


def reading(read: Callable[[], Any]) -> Any:
    """Return the result of `read`; None if this version or machine does not offer it."""
    try:
        return read()
    except Exception:
        return None


def read_all(readings: Dict[str, Callable[[], Any]]) -> Dict[str, Any]:
    """Return each reading by name; null for one that fails."""
    return {name: reading(read) for name, read in readings.items()}


def cpu_count() -> int:
    """Return the number of processors that this process may use."""
    return len(_affinity()) or os.cpu_count() or 1


def worker(environ: Mapping[str, str]) -> Dict[str, Any]:
    """Return {rank, world} as TF_CONFIG has them: the position among chief and workers, and their number.
    {} for a process that is none of them.
    """
    try:
        given = json.loads(environ.get("TF_CONFIG") or "{}")
        cluster, task = given.get("cluster") or {}, given.get("task") or {}
        kind, index = task.get("type"), int(task.get("index") or 0)
        members: List[Any] = [("chief", i) for i, _ in enumerate(cluster.get("chief") or ())]
        members += [("worker", i) for i, _ in enumerate(cluster.get("worker") or ())]
    except (ValueError, TypeError, AttributeError):
        return {}
    if (kind, index) not in members:
        return {}
    return {"rank": members.index((kind, index)), "world": len(members)}


def _affinity() -> List[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _cpu_flags() -> List[str]:
    have = set((_cpu_field("flags") or _cpu_field("Features")).split())
    return [flag for flag in CPU_FLAGS if flag in have]


def _cpu_field(name: str) -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.split("\t")[0] == name), "")
    except OSError:
        return ""


_LOCALE: Dict[str, Callable[[], Any]] = {
    "categories": lambda: {
        name: locale.setlocale(getattr(locale, name), None)
        for name in ("LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE")
    },
    "decimal_point": lambda: locale.localeconv()["decimal_point"],
    "preferred_encoding": lambda: locale.getpreferredencoding(False),
    "filesystem_encoding": sys.getfilesystemencoding,
    "utf8_mode": lambda: bool(sys.flags.utf8_mode),
}


def _utc_offsets() -> List[int]:
    """Return seconds east of UTC on 1 January and 1 July 2024: the zone's effect, whatever its name."""
    return [time.localtime(moment).tm_gmtoff for moment in (1704067200, 1719792000)]


_TIMEZONE: Dict[str, Callable[[], Any]] = {
    "TZ": lambda: os.environ.get("TZ"),
    "names": lambda: list(time.tzname),
    "utc_offsets": _utc_offsets,
}


def _case_sensitive() -> bool:
    """Whether the working folder distinguishes `a` from `A`, determined without writing."""
    for entry in Path().iterdir():
        other = Path(entry.name.swapcase())
        if other.name != entry.name:
            return not (other.exists() and other.samefile(entry))
    return not Path(str(Path.cwd()).swapcase()).exists()
