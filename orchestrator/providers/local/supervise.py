"""The supervisor process, which outlives the command: it creates one machine, waits for its end, and removes
its remains. It inherits the lock on the machine's folder. If it is killed, the machine continues and keeps
its own deadline, and the next `list` or `delete` removes its remains.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from orchestrator.providers.local import processes
from orchestrator.providers.local.computer import usable_cpus
from orchestrator.providers.local.launch import Child, LaunchError, launch, prepare
from orchestrator.providers.local.removal import destroy, kill_guest
from orchestrator.providers.local.store import Folder, Record, folders, read_json, write_json
from orchestrator.providers.local.supervisor import DEADLINE_GRACE_S

_DESTROY_S = 3600.0
_PR_SET_CHILD_SUBREAPER = 36


class Told(Exception):
    """SIGTERM: another process requested the end of this machine."""


def main(arguments: list[str]) -> None:
    """Run the supervisor; the arguments are FOLDER LOCK_FD REPORT_FD."""
    if os.fork():
        os._exit(0)  # so the supervisor is no child of the command
    os.umask(0o022)
    _default_signals()
    folder = Folder(Path(arguments[0]))
    report_fd = int(arguments[2])
    for fd in map(int, arguments[1:]):
        os.set_inheritable(fd, False)

    def report(error: str) -> None:
        with suppress(BrokenPipeError):  # the process that requested the machine may be gone
            os.write(report_fd, json.dumps({"error": error}).encode())
        os.close(report_fd)

    try:
        _live(folder, report)
    except Told:
        pass
    except Exception:
        traceback.print_exc()  # goes to supervisor.log
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _kill_children()
        remove(folder)


def _live(folder: Folder, report: Callable[[str], None]) -> None:
    record = folder.record()
    assert record is not None
    wake, woken = os.pipe()
    for fd in (wake, woken):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGTERM, _on_term)
    write_json(folder.path / "supervisor.json", asdict(processes.process(os.getpid())))
    _bind_to_cpus(folder, record)
    if record.tier == "process":
        _adopt_orphans()
    try:
        child = launch(folder, record, prepare(folder, record))
    except (LaunchError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        report(_explain(error))
        raise
    report("")
    _wait(folder, record, child, wake)


def _wait(folder: Folder, record: Record, child: Child, wake: int) -> None:
    """Wait until the machine has ended: by itself, at its deadline, or preempted."""
    while True:
        if child.pid in _reaped():
            return
        plug = read_json(folder.path / "preempt.json").get("at")
        left = min(record.left + DEADLINE_GRACE_S, math.inf if plug is None else plug - time.time())
        if left <= 0:
            kill_guest(folder)
        readable, _, _ = select.select([wake], [], [], min(max(left, 0.05), 60.0))
        if readable:
            os.read(wake, 4096)


def _reaped() -> set[int]:
    """Return the children that have ended, including adopted ones."""
    found = set()
    try:
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            found.add(pid)
    except ChildProcessError:
        pass
    return found


def remove(folder: Folder) -> None:
    """Remove the machine, repeatedly until nothing is left: the kernel may need minutes to write back the
    disk of a killed one.
    """
    end = time.monotonic() + _DESTROY_S
    while not destroy(folder) and time.monotonic() < end:
        time.sleep(1)


def _kill_children() -> None:
    for pid in processes.descendants(os.getpid()):
        processes.send(pid, signal.SIGKILL)
    _reaped()


def _on_term(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Told


def _default_signals() -> None:
    """Reset signals that a command in the background ignores, so that jobs on the machine do not inherit
    that.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # subprocess restores the default in the machine


def _adopt_orphans() -> None:
    """Become the parent of detached processes, so that they can be found."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _bind_to_cpus(folder: Folder, record: Record) -> None:
    """Bind this process, and so its machine, to the requested number of processors, the least used ones."""
    if not hasattr(os, "sched_setaffinity"):
        return
    used = [
        cpu for other in folders(folder.path.parent) for cpu in _cpus_of(other) if other.path != folder.path
    ]
    chosen = sorted(usable_cpus(), key=lambda cpu: (used.count(cpu), cpu))[: record.cpus]
    os.sched_setaffinity(0, chosen)
    write_json(folder.path / "cpus.json", {"cpus": chosen})


def _cpus_of(folder: Folder) -> list[int]:
    return list(read_json(folder.path / "cpus.json").get("cpus", []))


def _explain(error: Exception) -> str:
    stderr = getattr(error, "stderr", None)
    return f"{error}" + (f": {stderr.strip()}" if stderr else "")
