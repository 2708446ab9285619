"""Determine why a run ended, and say it in a sentence for users."""

from __future__ import annotations

import enum
import os
import re
import signal
import tempfile
from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Tuple

from .. import cgroups
from ..processes import describe_signal
from ..rundir import open_plain
from ..space import is_full

_TAIL = 1 << 16
_ROOM = 1 << 20
"""Bytes: a file system with less free space counts as full."""

_FULL_WORDS = (
    b"No space left on device",
    b"ENOSPC",
    b"Disk quota exceeded",
    b"Not enough free space to write",
    b"PytorchStreamWriter failed writing file",
)
"""Messages of the C library, NumPy (which reserves the space of an array first) and PyTorch."""
_KILLED_WORDS = (b"BrokenProcessPool", b"SIGKILL", b"exit code: -9", b"Killed", b"signal 9")
_DEVICE_FULL = re.compile(
    rb"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
    rb"|(ResourceExhaustedError|RESOURCE_EXHAUSTED).{0,4000}?"
    rb"(OOM when allocating|[Oo]ut of memory|[Ff]ailed to allocate)",
    re.DOTALL,
)
"""Messages of TensorFlow, PyTorch, JAX and CUDA; RESOURCE_EXHAUSTED alone can also be a service's quota."""


class ObservedStop(enum.Enum):
    """Which process ended itself after the observed steps. A program that started it, as a notebook's
    program starts its kernel, then usually fails, because the process is gone.
    """

    NONE = "none"
    JOB = "job"
    STARTED_BY_JOB = "started by job"


@dataclass(frozen=True)
class Facts:
    """What is known of an end. Exactly one of `code` and `signal` is set.

    `group_kills` and `global_kills`: processes that the kernel killed during the run because memory ran out,
    in the run's own control group and on the whole computer; None if the kernel does not report it.
    `machine_ends`: (reason, sentence) of the announcement that the machine ends, by preemption or its
    deadline. `stopped`: the same for a problem of the job for which it was asked to end. `full`: the file
    system without free space, or None. `log_tail`: the last part of its output. `data_denied`: the data file
    that the job's last output says it could not write.
    """

    code: Optional[int]
    signal: Optional[int]
    cancelled: bool = False
    machine_ends: Optional[Tuple[str, str]] = None
    stopped: Optional[Tuple[str, str]] = None
    observed: ObservedStop = ObservedStop.NONE
    group_kills: Optional[int] = None
    global_kills: Optional[int] = None
    full: Optional[str] = None
    log_tail: bytes = b""
    not_found: Optional[str] = None
    data_denied: Optional[str] = None


def stopped_after_steps(folder: str, pid: int) -> ObservedStop:
    """Return which process ended itself, as the run's `folder` of observations says. `pid`: of the job."""
    try:
        with open(f"{folder}/stopped", encoding="ascii", errors="replace") as file:
            words = file.read(100).split()
    except OSError:
        return ObservedStop.NONE
    return ObservedStop.STARTED_BY_JOB if words[1:] not in ([], [str(pid)]) else ObservedStop.JOB


def explain(facts: Facts) -> Dict[str, Any]:
    """Return the end as model.Exit has it: code, signal, reason, detail."""
    reason, detail = _why(facts)
    return {"code": facts.code, "signal": facts.signal, "reason": reason, "detail": detail}


def _why(facts: Facts) -> Tuple[str, str]:
    if facts.cancelled:
        return "cancelled", "The run was cancelled."
    if facts.machine_ends:
        reason, sentence = facts.machine_ends
        return reason, f"{sentence} The job was asked to end, and {_ended(facts)}."
    if facts.stopped:
        reason, sentence = facts.stopped
        asked = "The job" if reason == "data_failed" else "The job was asked to end, and"
        return reason, f"{sentence} {asked} {_ended(facts)}."
    if facts.observed is ObservedStop.STARTED_BY_JOB and facts.code is not None:
        how = f"; the program that had started the training then {_how(facts)}" if facts.code else ""
        return "observed", f"The run was stopped after the observed steps, as asked{how}."
    if facts.code == 0:
        if facts.observed is ObservedStop.JOB:
            return "observed", "The run was stopped after the observed steps, as asked."
        return "completed", "The command ended with status 0."
    if facts.not_found:
        return "failed", facts.not_found
    if _out_of_memory(facts):
        return "out_of_memory", "The machine's memory was used up, and the kernel killed the job."
    if _disk_full(facts):
        return "disk_full", f"There is no space left on the disk{_where(facts)}; {_how(facts)}."
    if facts.signal is not None:
        return "signal", f"The job was ended by signal {facts.signal} ({describe_signal(facts.signal)})."
    if _DEVICE_FULL.search(facts.log_tail):
        return (
            "device_out_of_memory",
            f"The command {_how(facts)}: its device had no memory left to allocate.",
        )
    if facts.data_denied:
        return "failed", (
            f"The command {_how(facts)}: it could not write {facts.data_denied}. Data are read-only for a "
            "run, because all runs share them; write a copy, or another file beside them."
        )
    return "failed", f"The command {_how(facts)}."


def _out_of_memory(facts: Facts) -> bool:
    """Whether the run was out of memory. A kill in its own group is sufficient; elsewhere the job must show
    that it was killed too.
    """
    if facts.group_kills:
        return True
    killed = facts.signal == signal.SIGKILL or facts.code == 128 + signal.SIGKILL
    told = any(word in facts.log_tail for word in _KILLED_WORDS)
    return bool(facts.global_kills) and (killed or told)


def _disk_full(facts: Facts) -> bool:
    return facts.full is not None or any(word in facts.log_tail for word in _FULL_WORDS)


def _where(facts: Facts) -> str:
    return f" at {facts.full}" if facts.full else ""


def _how(facts: Facts) -> str:
    if facts.signal is not None:
        return f"the job was ended by signal {facts.signal} ({describe_signal(facts.signal)})"
    return f"ended with status {facts.code}"


def _ended(facts: Facts) -> str:
    return _how(facts) if facts.signal is None else f"was ended by signal {facts.signal}"


# ---------------------------------------------------------------- gathering


@dataclass(frozen=True)
class Kills:
    """Counters of the kernel's out-of-memory kills, at one moment."""

    group: Optional[int]
    everywhere: Optional[int]


def kills_now() -> Kills:
    return Kills(cgroups.own().oom_kills(), cgroups.global_oom_kills())


def since(before: Optional[int], now: Optional[int]) -> Optional[int]:
    """Return the increase of a counter; None if it cannot be read."""
    return None if before is None or now is None else max(0, now - before)


def full_file_system(*paths: str) -> Optional[str]:
    """Return the first of the folders in which no further MiB can be written.

    That is tried: how much of a disk's reserve this user may use cannot be asked.
    """
    return next((path for path in paths if not _has_room(path)), None)


def _has_room(folder: str) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM))
            file.flush()
    except OSError as error:
        return not is_full(error)
    return True


def data_denied(log_tail: bytes, cwd: str, places: Sequence[str]) -> Optional[str]:
    """Return the path in the output's last permission error, if it lies in one of the data's `places`."""
    named = re.findall(rb"Permission denied: '([^'\n]+)'", log_tail)
    if not named:
        return None
    name = os.fsdecode(named[-1])
    path = os.path.normpath(name if name.startswith("/") else f"{cwd}/{name}")
    return name if any(path == place or path.startswith(place + os.sep) for place in places) else None


def tail(path: str) -> bytes:
    """Return the end of a file, at most 64 KiB; b"" if there is none."""
    try:
        with open(open_plain(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read(_TAIL)
    except OSError:
        return b""
