"""Run one bench, and end what it leaves behind: machines of this computer, and processes.

python scripts/bench_guard.py FOLDER SECONDS PROGRAM ARGUMENT…

The bench keeps its state and temporary files below FOLDER. After SECONDS, at SIGINT or SIGTERM, or when the
process that started this one ends, the bench is interrupted as by Ctrl-C, and killed a minute later. This
process is the parent of every orphan below it, also of daemons: what is still below it after the bench has
ended was left by the bench. Exit status: the bench's, or 124 after SECONDS.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

TOO_LONG = 124
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TO_CLEAN_UP_S, _TO_END_BY_THEMSELVES_S = 60.0, 3.0
_LEVELS = 6
"""How deep below a bench's folder a state folder may lie."""


def main(folder: Path, limit_s: float, command: Sequence[str]) -> int:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    status = 1
    try:
        status = _run(command, limit_s)
    except KeyboardInterrupt:
        status = 130
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        for left in (*_end_machines(folder), *_end_processes(), *_end_machines(folder)):
            print(f"bench: {left} was left behind, and is ended", file=sys.stderr, flush=True)
    return status


def _interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _run(command: Sequence[str], limit_s: float) -> int:
    """Run the bench; interrupt it at the limit, and whenever this process is interrupted."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return TOO_LONG
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_TO_CLEAN_UP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _end_machines(folder: Path) -> list[str]:
    patterns = ("/".join(["*"] * level + ["machines", "m-*"]) for level in range(_LEVELS))
    states = {found.parent.parent for pattern in patterns for found in folder.glob(pattern)}
    if not states:
        return []
    from orchestrator.providers.local.provider import open_local

    ended = []
    for provider in map(open_local, sorted(states)):
        for machine in provider.list({}):
            provider.delete(machine)
            ended.append(f"machine {machine.name}")
    return ended


def _end_processes() -> list[str]:
    """End each process below this one, and name it. Each first gets time to end by itself."""
    _await_end(_TO_END_BY_THEMSELVES_S)
    ended: dict[int, str] = {}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in _below(os.getpid()):
            ended.setdefault(pid, f"process {pid}, {_command(pid)},")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        _await_end(3)
    return list(ended.values())


def _await_end(patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while list(_below(os.getpid())) and time.monotonic() < end:
        time.sleep(0.1)


def _below(parent: int) -> Iterator[int]:
    """Yield the processes below `parent`; those that have ended are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            above = stat.read_text(errors="replace").rpartition(")")[2].split()[1]
            children.setdefault(int(above), []).append(int(stat.parent.name))
    waiting = [parent]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += below
        yield from below


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "unknown"
    return b" ".join(words).decode(errors="replace")[:120].strip()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
