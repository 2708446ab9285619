"""Measure what a step took: bytes of the device's allocator and of this process, and seconds of its cores."""

from __future__ import annotations

import os
import resource
import time
from typing import Any, Dict, Optional

from .. import cgroups

ALLOCATOR = "TF_CPU_ALLOCATOR_USE_BFC"
"""If this variable is 1 before TensorFlow is imported, tensors on the CPU use the same kind of allocator as
on a GPU. It counts the bytes in use and their peak.
"""

_UNIT = 16
_MOST_SPACE = 16 << 30
_HIGH_WATER = "5"


class Meter:
    """Measure on one device: the first GPU if TensorFlow uses one, else the CPU."""

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        gpus = tf.config.list_logical_devices("GPU")
        self.device = "GPU:0" if gpus else "CPU:0"
        self.counts = self._peak() is not None
        self._before: Optional[int] = None
        self._began = (0.0, 0.0)
        self._account = 0

    def name(self) -> str:
        """Return the name of the GPU, or CPU."""
        if self.device == "CPU:0":
            return "CPU"
        try:
            physical = self._tf.config.list_physical_devices("GPU")[0]
            return str(self._tf.config.experimental.get_device_details(physical).get("device_name", "GPU"))
        except Exception:
            return "GPU"

    def spread(self) -> None:
        """Let the CPU's allocator own one large region, as that of a GPU does from the start.

        It grows by doubling otherwise, and a tensor that is alone in a new region counts as all of it. The
        pages are never touched; their accounting costs 3% of them, which is not counted.
        """
        if self.device == "CPU:0" and self.counts:
            without = resident_bytes()
            space = min(_MOST_SPACE, int(available() * 0.9))
            try:
                kind = self._tf.complex128
                self._tf.raw_ops.Empty(shape=[space // _UNIT], dtype=kind, init=False)
            except Exception:  # address space is limited: the count is a little less exact
                pass
            self._account = resident_bytes() - without

    def measure(self, call: Any) -> Dict[str, Any]:
        """Measure a call; returns what `end` does."""
        self.begin()
        result = call()
        del result
        return self.end()

    def begin(self) -> None:
        """Start measuring a step."""
        self._before = self._current()
        self._reset()
        _reset_high_water()
        self._began = (time.process_time(), time.perf_counter())

    def end(self) -> Dict[str, Any]:
        """Return the usage since `begin`.

        `peak`: most bytes in use beyond those at the start (None if not counted), `before`: those at the
        start; `rss`: most bytes of the process; `seconds`, and `cpu`, those of its cores.
        """
        self._wait()
        seconds, cpu = time.perf_counter() - self._began[1], time.process_time() - self._began[0]
        peak = self._peak()
        return {
            "peak": None if peak is None or self._before is None else peak - self._before,
            "before": self._before,
            "rss": high_water() - self._account + children_rss(),
            "seconds": round(seconds, 6),
            "cpu": round(cpu, 6),
        }

    def _wait(self) -> None:
        try:
            self._tf.test.experimental.sync_devices()
        except Exception:  # older versions: what ran on the CPU has ended already
            pass

    def _info(self) -> Dict[str, int]:
        return dict(self._tf.config.experimental.get_memory_info(self.device))

    def _peak(self) -> Optional[int]:
        try:
            return self._info()["peak"]
        except Exception:
            return None

    def _current(self) -> Optional[int]:
        return self._info()["current"] if self.counts else None

    def _reset(self) -> None:
        if self.counts:
            self._tf.config.experimental.reset_memory_stats(self.device)


def high_water() -> int:
    """Return the maximum bytes of memory of this process since that was last reset."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """Return the bytes of memory of this process now."""
    return _status("VmRSS") or 0


def children_rss() -> int:
    """Return the bytes of memory of its children, such as workers of an input pipeline."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return sum(_status("VmRSS", child) or 0 for child in file.read().split())
    except OSError:
        return 0


def available() -> int:
    """Return the bytes of memory that this process could still take: of the computer, or of its control
    group.
    """
    free = 0
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    groups = cgroups.own()
    limit, now = groups.memory_limit(), groups.memory_held()
    return free if limit is None or now is None else min(free, limit - now)


def bytes_read() -> int:
    """Return the bytes that this process has read from any source."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            return int(file.readline().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _status(key: str, process: str = "self") -> Optional[int]:
    try:
        with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(f"{key}:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _reset_high_water() -> None:
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write(_HIGH_WATER)
    except OSError:
        pass
