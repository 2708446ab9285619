"""Resource limits of this process and its children."""

from __future__ import annotations

import resource


def set_limits(memory: int, file_size: int, cpu_seconds: int) -> None:
    """Limit data memory and the size of each written file (bytes), and CPU time (seconds). No core dumps.

    The memory limit applies to private writable pages: mapped libraries do not count.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_DATA, memory)
    _limit(resource.RLIMIT_FSIZE, file_size)
    _limit(resource.RLIMIT_CPU, cpu_seconds)


def _limit(which: int, value: int) -> None:
    """Lower one limit. A lower one is kept; errors are ignored."""
    try:
        _, hard = resource.getrlimit(which)
        lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (lowest, lowest))
    except (OSError, ValueError):
        return
