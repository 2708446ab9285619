"""Warnings during a run: the machine is too small, or prevented from working. Each is given once.

Rules see the samples of the last half minute, at least three of them, so that a short peak causes no warning.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

WINDOW = 30.0
"""Seconds that a shortage must last."""

SWAP_RATE = 1e6
"""Bytes per second swapped in or out, while a part of the job itself is swapped out."""

MEMORY_NEARLY_FULL = 0.95
STOLEN = 0.1
"""Share of the job's cores that the host of the machine, or a quota, withholds."""

GPU_IDLE = 0.3
GPU_WINDOW = 120.0
GPU_USED = 256 << 20
"""Bytes on a GPU from which the job counts as using it."""

DISK_NEAR_CAP = 0.9
_MIB = 1 << 20
_GIB = 1 << 30
_HELD_DOWN = ("hardware slowdown", "thermal, by software", "thermal, by hardware", "power brake")
_AGAINST_A_CORE = 0.85

Line = Dict[str, Any]
Alarm = Tuple[str, str]


class Alarms:
    """The warnings of one run; it receives the run's samples in order."""

    def __init__(self, header: Line) -> None:
        self._header = header
        self._lines: Deque[Line] = deque()
        self._said: Set[str] = set()

    def see(self, line: Line) -> List[Alarm]:
        """Return (kind, sentence) of new warnings."""
        self._lines.append(line)
        while len(self._lines) > 3 and self._lines[1]["up"] < line["up"] - max(WINDOW, GPU_WINDOW):
            self._lines.popleft()
        fresh = [(kind, text) for kind, text in self._all() if kind not in self._said]
        self._said.update(kind for kind, _ in fresh)
        return fresh

    def _all(self) -> Iterator[Alarm]:
        for kind, rule, seconds in _RULES:
            span = _last(self._lines, seconds)
            text = rule(self._header, span) if span else None
            if text is not None:
                yield kind, text


class Span(NamedTuple):
    """Consecutive samples; rates are between the first and the last."""

    lines: List[Line]
    seconds: float

    def rate(self, *keys: str) -> Optional[float]:
        """Return the growth of the sum of these totals a second."""
        first, last = self.lines[0], self.lines[-1]
        if any(line.get(key) is None for line in (first, last) for key in keys):
            return None
        return float(sum(last[key] - first[key] for key in keys)) / self.seconds


def _last(lines: Deque[Line], seconds: float) -> Optional[Span]:
    """Return the samples of the last `seconds`, None if they do not reach back so far."""
    kept: List[Line] = []
    for line in reversed(lines):
        kept.append(line)
        spanned = kept[0]["up"] - line["up"]
        if spanned >= seconds and len(kept) >= 3:
            return Span(kept[::-1], spanned)
    return None


def _swapping(header: Line, span: Span) -> Optional[str]:
    del header
    rate = span.rate("swapped_in", "swapped_out")
    swap = span.lines[-1].get("swap") or 0
    if rate is None or rate < SWAP_RATE or not swap:
        return None
    return (
        f"It is swapping: {rate / _MIB:.0f} MiB/s go to and from the disk, {swap / _GIB:.1f} GiB of the job "
        "are there. More memory is needed, or smaller batches."
    )


def _nearly_full(header: Line, span: Span) -> Optional[str]:
    limit = header.get("memory")
    shares = [share for line in span.lines if (share := _held(header, line)) is not None]
    if not limit or len(shares) < len(span.lines) or min(shares) < MEMORY_NEARLY_FULL:
        return None
    return (
        f"Memory is nearly full: {shares[-1]:.0%} of {limit / _GIB:.1f} GiB. Where it ends, the kernel ends "
        "the job."
    )


def _held(header: Line, line: Line) -> Optional[float]:
    """Return the share of memory that is not available: of the control group if it has a limit, else of the
    machine.
    """
    limit = header.get("memory")
    if not limit:
        return None
    if header.get("memory_is_a_limit"):
        held = line.get("group_held")
        return None if held is None else held / limit
    available = line.get("available")
    return None if available is None else 1 - available / limit


def _stolen(header: Line, span: Span) -> Optional[str]:
    return _kept_away(
        header, span, "steal", "Other machines on the same host take {share:.0%} of its cores from it."
    )


def _throttled(header: Line, span: Span) -> Optional[str]:
    return _kept_away(
        header, span, "throttled", "A quota keeps it from its cores for {share:.0%} of the time."
    )


def _kept_away(header: Line, span: Span, key: str, text: str) -> Optional[str]:
    rate = span.rate(key)
    cores = header.get("cores")
    if rate is None or not cores or rate / cores < STOLEN:
        return None
    return text.format(share=rate / cores)


def _gpu_waiting(header: Line, span: Span) -> Optional[str]:
    for index, name in enumerate(header.get("gpus") or []):
        seen = _of_gpu(span.lines, index)
        if len(seen) < len(span.lines) or any((gpu.get("memory") or 0) < GPU_USED for gpu in seen):
            continue
        busy = [gpu["utilisation"] for gpu in seen if gpu.get("utilisation") is not None]
        if busy and sum(busy) / len(busy) < GPU_IDLE:
            share = sum(busy) / len(busy)
            return f"The GPU {name} waits: it is busy for {share:.0%} of the time{_why(header, span)}."
    return None


def _why(header: Line, span: Span) -> str:
    used, cores = span.rate("cpu_user", "cpu_system"), header.get("cores")
    if used is None or not cores:
        return ""
    if used / cores >= _AGAINST_A_CORE:
        return f", while the job keeps all of its {_of_cores(cores)} busy"
    return f", while {used:.1f} of {_of_cores(cores)} work"


def _gpu_held_down(header: Line, span: Span) -> Optional[str]:
    for index, name in enumerate(header.get("gpus") or []):
        reasons = [set(gpu.get("throttled") or ()) & set(_HELD_DOWN) for gpu in _of_gpu(span.lines, index)]
        if len(reasons) == len(span.lines) and all(reasons):
            return f"The GPU {name} is held down: {', '.join(sorted(reasons[-1]))}."
    return None


def _of_gpu(lines: List[Line], index: int) -> List[Line]:
    found = [line.get("gpus") for line in lines]
    return [gpus[index] for gpus in found if isinstance(gpus, list) and len(gpus) > index]


def _disk_at_its_cap(header: Line, span: Span) -> Optional[str]:
    for name, disk in (header.get("disks") or {}).items():
        before, now = (_moved(line, name) for line in (span.lines[0], span.lines[-1]))
        limits = disk.get("limits") or {}
        ops = (now[0] + now[3] - before[0] - before[3]) / span.seconds
        rate = (now[1] + now[4] - before[1] - before[4]) / span.seconds
        for value, limit, shown in (
            (rate, limits.get("bytes_s"), f"{rate / _MIB:.0f} MiB/s"),
            (ops, limits.get("ops_s"), f"{ops:.0f} operations a second"),
        ):
            if limit and value >= DISK_NEAR_CAP * limit:
                return f"The disk {name} gives what it can: {shown} ({limits['basis']})."
    return None


def _moved(line: Line, name: str) -> List[int]:
    found: List[int] = (line.get("disks") or {}).get(name) or [0] * 7
    return found


_RULES: List[Tuple[str, Callable[[Line, Span], Optional[str]], float]] = [
    ("swapping", _swapping, WINDOW),
    ("memory", _nearly_full, 1.0),
    ("steal", _stolen, WINDOW),
    ("throttled", _throttled, WINDOW),
    ("gpu", _gpu_waiting, GPU_WINDOW),
    ("gpu held down", _gpu_held_down, WINDOW),
    ("disk", _disk_at_its_cap, WINDOW),
]
"""(kind, rule, seconds of samples that the rule needs)"""


def _of_cores(cores: float) -> str:
    return f"{cores:g} core{'' if cores == 1 else 's'}"
