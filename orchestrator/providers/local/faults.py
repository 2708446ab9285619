"""Fault injection for real machines, for tests."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.local import group, network, processes, supervisor
from orchestrator.providers.local.removal import cgroup_of, kill_guest
from orchestrator.providers.local.store import Folder, Guest, Record
from orchestrator.providers.local.survey import disk_kind

FILLER = ".orch-filler"
_CHUNK = 1 << 20


def kill(folder: Folder) -> None:
    """Kill the machine, as a power cut does."""
    kill_guest(folder)


def preempt(folder: Folder, guest: Guest, notice_s: float) -> None:
    """Ask the machine to shut down, and kill it `notice_s` seconds later."""
    supervisor.preempt_at(folder, time.time() + notice_s)
    processes.Process(guest.pid, guest.start).signal(signal.SIGUSR2)


def freeze(folder: Folder, guest: Guest, frozen: bool) -> None:
    """Stop all processes of the machine, or let them continue."""
    if cgroup_of(folder).freeze(frozen):
        return
    for pid in _members(folder, guest):
        processes.send(pid, signal.SIGSTOP if frozen else signal.SIGCONT)


@contextmanager
def frozen(folder: Folder, guest: Guest) -> Iterator[None]:
    """Stop all processes of the machine during the block."""
    freeze(folder, guest, True)
    try:
        yield
    finally:
        freeze(folder, guest, False)


def partition(record: Record, guest: Guest, cut: bool) -> None:
    """Drop all packets to and from the machine, or stop dropping them."""
    _require_own(record, "network", record.tier == "netns")
    network.partition(guest.pid, cut)


def isolate(folder: Folder, record: Record, guest: Guest, cut: bool) -> None:
    """Drop all packets between a machine and its group, or stop dropping them. `join` does not change
    that.
    """
    _require_own(record, "network", record.tier == "netns")
    group.isolate(group.Member(guest.pid, folder.mark, guest.interface), cut)


def fill_disk(folder: Folder, record: Record, guest: Guest) -> None:
    """Fill the machine's disk completely."""
    _require_own(record, "disk", record.tier == "netns" and disk_kind(folder.path) != "folder")
    fd = os.open(_filler(guest), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = _CHUNK
        while size >= 512:
            size = _grown(fd, size)
    finally:
        os.close(fd)


def free_disk(folder: Folder, record: Record, guest: Guest) -> None:
    _require_own(record, "disk", record.tier == "netns" and disk_kind(folder.path) != "folder")
    _filler(guest).unlink(missing_ok=True)


def _grown(fd: int, size: int) -> int:
    """Return the size to try next: first all free space, then less and less."""
    status = os.fstatvfs(fd)
    try:
        if status.f_bavail * status.f_bsize > size:
            os.posix_fallocate(fd, os.fstat(fd).st_size, status.f_bavail * status.f_bsize)
        else:
            os.write(fd, b"\0" * size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return size // 2
    return size


def _filler(guest: Guest) -> Path:
    return Path(f"/proc/{guest.pid}/root/{FILLER}")


def _members(folder: Folder, guest: Guest) -> set[int]:
    """Return all processes of a machine that has no control group."""
    namespace = processes.in_namespace_of(guest.pid)
    isolated = namespace and os.getpid() not in namespace
    return namespace if isolated else processes.marked(folder.mark) | {guest.pid}


def _require_own(record: Record, what: str, own: bool) -> None:
    if not own:
        message = f"The machine {record.name} (tier {record.tier}) has no {what} of its own that can fail."
        raise ProviderError(Fault.INVALID, message)
