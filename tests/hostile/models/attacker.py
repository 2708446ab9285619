"""A module of the user's that was let in, and is hostile: tries everything when it is imported.

`attack.json` beside it says what to attack. Raises an exception that names what could be done.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import resource
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
ASK = json.loads(Path(__file__).with_name("attack.json").read_text())
VICTIM, ARTIFACT = ASK["victim"], ASK["artifact"]
PARENT = os.getppid() or ASK["parent"]
DONE: list[str] = []


def attempt(name: str, action: Any) -> None:
    try:
        action()
    except BaseException:
        return
    DONE.append(name)


def called(name: str, *arguments: Any) -> int:
    result = int(getattr(_LIBC, name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def signals_of_the_kernel() -> None:
    reading, _ = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, PARENT)


def a_child() -> None:
    if os.fork() == 0:
        os._exit(0)


def shared_memory() -> None:
    memory = mmap.mmap(-1, ASK["memory"])
    for place in range(0, len(memory), 4096):
        memory[place] = 1


def read_canary() -> None:
    found = [os.environ.get(ASK["variable"]), Path(f"/proc/{PARENT}/environ").read_bytes()]
    assert any(found)


def stay() -> None:
    """Not be killed with those who started it."""
    called("prctl", 1, 0, 0, 0, 0)


for path in (VICTIM, ARTIFACT):
    attempt(f"chmod {path}", lambda path=path: Path(path).chmod(0o777))
    attempt(f"times of {path}", lambda path=path: os.utime(path, (1, 1)))
    attempt(f"truncate {path}", lambda path=path: os.truncate(path, 1))
    attempt(f"attribute of {path}", lambda path=path: os.setxattr(path, "user.a", b"b"))
    attempt(f"owner of {path}", lambda path=path: os.chown(path, os.getuid(), os.getgid()))
    attempt(f"write {path}", lambda path=path: Path(path).write_text("x"))
    attempt(f"remove {path}", lambda path=path: Path(path).unlink())
    attempt(f"rename {path}", lambda path=path: Path(path).rename(f"{path}2"))
attempt("chmod of an open file", lambda: os.fchmod(os.open(ARTIFACT, os.O_RDONLY), 0o777))
attempt("read the victim", lambda: Path(VICTIM).read_text())
attempt("read a variable", read_canary)
attempt("limits of another process", lambda: resource.prlimit(PARENT, resource.RLIMIT_CORE, (0, 0)))
attempt("priority of another process", lambda: os.setpriority(os.PRIO_PROCESS, PARENT, 19))
attempt("processors of another process", lambda: os.sched_setaffinity(PARENT, {0}))
attempt("kill", lambda: os.kill(PARENT, 0))
attempt("signals of the kernel", signals_of_the_kernel)
attempt("fork", a_child)
attempt("a program", lambda: subprocess.run(["/bin/sh", "-c", f"echo x > {VICTIM}"], check=True))
attempt("a socket", lambda: socket.socket(socket.AF_UNIX))
attempt("connect", lambda: socket.create_connection(("127.0.0.1", ASK["port"]), 2))
attempt("its own session", os.setsid)
attempt("its own group", lambda: os.setpgid(0, 0))
attempt("outlive", stay)
attempt("shared memory of System V", lambda: called("shmget", 0, 4096, 0o600 | 0o1000))
attempt("watch a folder", lambda: called("inotify_init1", 0))
attempt("memory", lambda: bytearray(ASK["memory"]))
attempt("memory of a file without a name", lambda: os.memfd_create("a"))
attempt("memory that is shared", shared_memory)
if ASK["stays"]:
    time.sleep(600)
raise RuntimeError(json.dumps(DONE))
