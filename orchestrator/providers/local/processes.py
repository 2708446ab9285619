"""Processes identified by process id and start time, so that a reused id is not mistaken for a process of
orch.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STATE, _PARENT, _START = 0, 1, 19  # fields of /proc/PID/stat after the name


@dataclass(frozen=True)
class Process:
    """One process. `start` is in clock ticks since boot; "" if the system does not report it."""

    pid: int
    start: str

    def alive(self) -> bool:
        if not _PROC.joinpath("self").exists():
            return _exists(self.pid)
        fields = _stat(self.pid)
        return bool(fields) and fields[_START] == self.start and fields[_STATE] not in ("Z", "X")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process is gone."""
        if self.alive():
            send(self.pid, number)

    def ended(self, patience_s: float) -> bool:
        """Return whether it ends within `patience_s`."""
        end = time.monotonic() + patience_s
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True


def process(pid: int) -> Process:
    """Return the process that has this id now."""
    fields = _stat(pid)
    return Process(pid, fields[_START] if fields else "")


def send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def marked(mark: str) -> set[int]:
    """Return the processes that were started with ORCH_MACHINE=`mark` in their environment."""
    wanted = f"ORCH_MACHINE={mark}".encode()
    return {pid for pid in _numbers() if wanted in _environment(pid)}


def titled(text: str) -> set[int]:
    """Return the processes with `text` in their command line; sshd overwrites its environment with
    its title.
    """
    wanted = text.encode()
    return {pid for pid in _numbers() if wanted in _command_line(pid)}


def in_namespace_of(pid: int) -> set[int]:
    """Return the processes of the process namespace whose first process is `pid`."""
    wanted = _namespace(pid)
    return {other for other in _numbers() if wanted and _namespace(other) == wanted}


def descendants(pid: int) -> set[int]:
    """Return all processes below `pid`, at any depth."""
    parents = {number: int(fields[_PARENT]) for number in _numbers() if (fields := _stat(number))}
    found: set[int] = set()
    grown = {pid}
    while grown:
        grown = {child for child, parent in parents.items() if parent in grown} - found
        found |= grown
    return found


def _numbers() -> Iterable[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()] if _PROC.exists() else []


def _stat(pid: int) -> list[str]:
    try:
        return _PROC.joinpath(str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _environment(pid: int) -> list[bytes]:
    try:
        return _PROC.joinpath(str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _command_line(pid: int) -> bytes:
    try:
        return _PROC.joinpath(str(pid), "cmdline").read_bytes()
    except OSError:
        return b""


def _namespace(pid: int) -> str:
    try:
        return str(_PROC.joinpath(str(pid), "ns/pid").readlink())
    except OSError:
        return ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
