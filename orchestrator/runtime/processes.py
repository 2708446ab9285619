"""Read processes and their owners from the kernel. Linux only; elsewhere nothing is found."""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH208

from __future__ import annotations

import os
import signal
from typing import Iterable, Iterator, List, NamedTuple, Optional, Set

_TICK = float(os.sysconf("SC_CLK_TCK"))
_PAGE = os.sysconf("SC_PAGE_SIZE")
_AT_ONCE = 1 << 16


class Stat(NamedTuple):
    """One process now. Times in seconds, `rss` in bytes; `children_…` is of children that it has waited for.

    `start` is in clock ticks since boot: together with the pid it identifies a process uniquely.
    """

    pid: int
    parent: int
    session: int
    state: str
    start: int
    user: float
    system: float
    children_user: float
    children_system: float
    major_faults: int
    threads: int
    rss: int

    @property
    def zombie(self) -> bool:
        return self.state in ("Z", "X")


def stat(pid: int) -> Optional[Stat]:
    """Return the process, or None if it does not exist."""
    text = read(f"/proc/{pid}/stat")
    if text is None:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        state=fields[0],
        start=int(fields[19]),
        user=int(fields[11]) / _TICK,
        system=int(fields[12]) / _TICK,
        children_user=int(fields[13]) / _TICK,
        children_system=int(fields[14]) / _TICK,
        major_faults=int(fields[9]) + int(fields[10]),
        threads=int(fields[17]),
        rss=int(fields[21]) * _PAGE,
    )


def read(path: str) -> Optional[str]:
    """Return a small kernel file as text, or None if it is missing or forbidden."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a third of what `open` takes; threads are many
    except OSError:
        return None
    try:
        return b"".join(iter(lambda: os.read(file, _AT_ONCE), b"")).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(file)


def start_of(pid: int) -> Optional[int]:
    """Return when the process began, in ticks since boot; None if unknown."""
    found = stat(pid)
    return found.start if found else None


def alive(pid: int, start: Optional[int]) -> bool:
    """Whether exactly that process lives; a process that reuses its number does not count."""
    found = stat(pid)
    return found is not None and not found.zombie and found.start == start


def boot_id() -> Optional[str]:
    """Return the id of the current boot of the machine."""
    text = read("/proc/sys/kernel/random/boot_id")
    return text.strip() if text else None


def descendants(root: int) -> List[Stat]:
    """Return every process below `root`, including zombies."""
    found: List[Stat] = []
    seen: Set[int] = set()
    waiting = list(_children(root))
    while waiting:
        pid = waiting.pop()
        entry = None if pid in seen else stat(pid)
        seen.add(pid)
        if entry is not None:
            found.append(entry)
            waiting.extend(_children(pid))
    return found


def members(session: int, since: Optional[int], marker: str) -> List[int]:
    """Return live processes of a run: of its session, or with `marker` (its trace) in their environment.

    `since` is when the run's first process, the leader of the session, began. The kernel gives its number
    away once the session is empty: a leader that began at another time has a session of its own.
    """
    own = os.getpid()
    leader = start_of(session)
    if since is not None and leader is not None and leader != since:
        session = 0
    return [
        entry.pid
        for entry in _all()
        if entry.pid != own
        and not entry.zombie
        and (
            (session and entry.session == session and entry.start >= (since or 0))
            or _carries(entry.pid, marker)
        )
    ]


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send the signal to each process that still lives."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def signal_exactly(pid: int, start: Optional[int], number: int) -> None:
    """Send the signal to that process if it still lives, never to one that reuses its number."""
    if alive(pid, start):
        signal_all([pid], number)


def signal_group(leader: int, number: int) -> None:
    """Send the signal to a process group, which may be gone."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        pass


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends, as init would. Returns False if not
    possible.
    """
    try:
        import ctypes

        return int(ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)) == 0
    except (ImportError, OSError, AttributeError):
        return False


def spare_from_oom_killer(score: int = -900) -> Optional[str]:
    """Ask the kernel to kill other processes first; returns the setting before, which the job gets back."""
    before = read("/proc/self/oom_score_adj")
    return before if before is not None and set_oom_score(str(score)) else None


def set_oom_score(score: str) -> bool:
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(score)
    except OSError:
        return False
    return True


def describe_signal(number: int) -> str:
    """Return "SIGTERM" for 15."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _children(pid: int) -> Iterator[int]:
    """Return the children of each thread: those that it forked."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        text = read(f"/proc/{pid}/task/{thread}/children")
        if text:
            yield from map(int, text.split())


def _all() -> Iterator[Stat]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        entry = stat(int(name)) if name.isdigit() else None
        if entry is not None:
            yield entry


def naming(folder: str) -> List[int]:
    """Return the other processes whose command line names something below `folder`."""
    wanted = os.fsencode(folder.rstrip("/") + "/")
    return [entry.pid for entry in _all() if entry.pid != os.getpid() and wanted in _command_line(entry.pid)]


def _command_line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def with_variable(name: str, value: str) -> Optional[List[int]]:
    """Return the other processes that were started with this variable; None if processes cannot be listed."""
    entries = list(_all())
    if not entries:
        return None
    return [entry.pid for entry in entries if entry.pid != os.getpid() and _has(entry.pid, name, value)]


def _carries(pid: int, marker: str) -> bool:
    return _has(pid, "ORCH_TRACE", marker)


def _has(pid: int, name: str, value: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return os.fsencode(f"{name}={value}") in file.read().split(b"\0")
    except OSError:
        return False
