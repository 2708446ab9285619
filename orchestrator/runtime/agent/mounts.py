"""Notice the mounts that a job makes: a mount over its data changes what it reads.

A seccomp filter reports each of these system calls to the supervisor and then lets it continue. Neither a
mount namespace of the job nor an unmount before its end hides one. Only on Linux can an unprivileged program
mount.
"""

# Close to the kernel: numbers, structures and descriptors need os calls, not pathlib.

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..rundir import RunDir, write_json

_MOST = 10
"""Maximum number of reported mounts; one is enough to know that the run may have read other data."""

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _TELL = 0x7FFF0000, 0x7FC00000
_SET_FILTER, _SPEC_ALLOW, _NEW_LISTENER = 1, 4, 8
_NO_NEW_PRIVILEGES = 38
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_NOTICE = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_LONGEST = 300


class _Call(NamedTuple):
    """A system call. `target`: which of its arguments is the path that changes; -1 if none is."""

    name: str
    target: int


_MOUNT, _MOVE = _Call("mount", 1), _Call("move_mount", 3)
_PIVOT, _CHROOT, _SETNS = _Call("pivot_root", 0), _Call("chroot", 0), _Call("setns", -1)
_UNMOUNT = _Call("umount", 0)
_CALLS: Dict[int, Dict[int, _Call]] = {
    0xC000003E: {165: _MOUNT, 166: _UNMOUNT, 155: _PIVOT, 161: _CHROOT, 308: _SETNS, 429: _MOVE},
    0x40000003: {21: _MOUNT, 22: _UNMOUNT, 52: _UNMOUNT, 217: _PIVOT, 61: _CHROOT, 346: _SETNS, 429: _MOVE},
    0xC00000B7: {40: _MOUNT, 39: _UNMOUNT, 41: _PIVOT, 51: _CHROOT, 268: _SETNS, 429: _MOVE},
    0x40000028: {21: _MOUNT, 52: _UNMOUNT, 218: _PIVOT, 61: _CHROOT, 375: _SETNS, 429: _MOVE},
}
"""By architecture (x86-64, i386, ARM with 64 and 32 bits): system calls by their numbers."""
_CALLS[0xC000003E].update({0x40000000 | number: call for number, call in _CALLS[0xC000003E].items()})

_SECCOMP = {"x86_64": 317, "aarch64": 277}


def tell(to: socket.socket) -> None:
    """Install the filter for this process and all that it starts; send its listener, or nothing, to `to`.

    If the kernel requires it for a filter, programs that it starts gain no privileges.
    """
    try:
        listener = _listen()
    except OSError:
        return
    socket.send_fds(to, [b"m"], [listener])
    os.close(listener)


def told(by: socket.socket) -> Optional[int]:
    """Return the listener that `tell` sends; None if it sends none."""
    _, listeners, _, _ = socket.recv_fds(by, 1, 1)
    for listener in listeners:
        os.set_inheritable(listener, False)
        return int(listener)
    return None


def _listen() -> int:
    number = _SECCOMP.get(os.uname().machine)
    if number is None or not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, "no filter is known for this architecture")
    libc = ctypes.CDLL(None, use_errno=True)
    rows = _instructions()
    rows_there = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in rows))
    program = struct.pack("@HP", len(rows), ctypes.addressof(rows_there))
    flags = _SPEC_ALLOW | _NEW_LISTENER

    def install() -> int:
        return int(libc.syscall(number, _SET_FILTER, flags, program))

    listener = install()
    if listener < 0 and ctypes.get_errno() == errno.EACCES:
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        listener = install()
    if listener < 0:
        raise OSError(ctypes.get_errno(), "the filter was refused")
    os.set_inheritable(listener, False)
    return listener


def _instructions() -> List[Tuple[int, int, int, int]]:
    """Return the filter's program: the calls of each architecture, without their arguments, which are read
    later.
    """
    rows = [(_LOAD, 0, 0, 4)]
    for architecture, calls in _CALLS.items():
        block = [(_LOAD, 0, 0, 0)]
        block += [row for each in calls for row in ((_EQUAL, 0, 1, each), (_RETURN, 0, 0, _TELL))]
        block += [(_RETURN, 0, 0, _ALLOW)]
        rows += [(_EQUAL, 0, len(block), architecture), *block]
    return [*rows, (_RETURN, 0, 0, _ALLOW)]


class Mounts:
    """The mounts of one run, from the listener that its first process sent; None if there is none."""

    def __init__(self, run: RunDir, listener: Optional[int]) -> None:
        self.listener = listener
        self._watched = listener is not None
        self._run = run
        self._seen: List[Dict[str, Any]] = []
        self._write()

    def answer_all(self) -> None:
        """Note each waiting call, and let it continue."""
        while self.listener is not None:
            waiting = select.poll()
            waiting.register(self.listener, select.POLLIN)
            events = sum(event for _, event in waiting.poll(0))
            if events & select.POLLIN:
                self._answer(self.listener)
            elif events:  # every process of the job has ended
                os.close(self.listener)
                self.listener = None
            else:
                return

    def _answer(self, listener: int) -> None:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
            id_, pid, _, number, architecture, _, *arguments = _NOTICE.unpack(notice)
            call = _CALLS[architecture][number]
            self._note({"program": _name(pid), "call": call.name, "target": _path(pid, call, arguments)})
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(id_, 0, 0, _CONTINUE))
        except OSError:  # the process was killed while it waited
            pass

    def _note(self, mount: Dict[str, Any]) -> None:
        if len(self._seen) < _MOST and mount not in self._seen:
            self._seen.append(mount)
            try:
                self._write()
            except OSError:  # a full disk; it is written together with the next one
                pass

    def _write(self) -> None:
        write_json(self._run.mounts, {"watched": self._watched, "mounts": self._seen})


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()[:_LONGEST]
    except OSError:
        return "?"


def _path(pid: int, call: _Call, arguments: List[int]) -> str:
    """Return the path argument of a call, as the program wrote it; "" if it cannot be read."""
    if call.target < 0:
        return ""
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.pread(memory, _LONGEST, arguments[call.target])
    except (OSError, OverflowError):
        return ""
    finally:
        os.close(memory)
    return text.split(b"\0")[0].decode(errors="replace")
