"""Mount a FUSE file system: with the kernel's own call if this process may, else with fusermount3.

Root may, unless the machine withholds CAP_SYS_ADMIN, as an isolated local one does. Others need `fusermount3`
(Debian and Ubuntu: package fuse3), which is setuid, and permission to open /dev/fuse.
"""

# ruff: noqa: PTH110

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import socket
import subprocess
from typing import List

_READ_ONLY, _NO_SUID, _NO_DEV = 1, 2, 4
_DETACH = 2
_DEVICE = "/dev/fuse"
_HELPERS = ("fusermount3", "fusermount")
_NAME = "orch"
_OCTAL = re.compile(r"\\([0-7]{3})")


class CannotMount(Exception):
    """No file system can be mounted here. The text is the reason."""


def mount(place: str) -> int:
    """Mount at the folder `place`; returns the descriptor on which requests are read and answered. Raises
    CannotMount."""
    if not os.path.exists(_DEVICE):
        raise CannotMount(f"this machine has no {_DEVICE}")
    try:
        return _by_the_kernel(place)
    except OSError as error:
        helper = _helper()
        if not helper:
            raise CannotMount(f"{error.strerror}; {_needed()}") from error
    return _by_helper(helper, place)


def unmount(place: str) -> None:
    """Unmount `place`, even if the process that served it is dead; do nothing if nothing is mounted there."""
    if _call("umount2", os.fsencode(place), _DETACH) != 0 and _helper():
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run([_helper(), "-u", "-z", "--", place], capture_output=True, timeout=60, check=False)


def mounted() -> List[str]:
    """Return every mount point, whether its process is alive or not."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        return [_OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split()[4]) for line in mounts]


def _by_the_kernel(place: str) -> int:
    device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()},default_permissions"
    options += ",allow_other" if os.geteuid() == 0 else ""
    flags = _READ_ONLY | _NO_SUID | _NO_DEV
    if _call("mount", _NAME.encode(), os.fsencode(place), b"fuse", flags, options.encode()) != 0:
        failed = ctypes.get_errno()
        os.close(device)
        raise OSError(failed, os.strerror(failed))
    return device


def _by_helper(helper: str, place: str) -> int:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        options = f"ro,nosuid,nodev,default_permissions,fsname={_NAME}"
        done = subprocess.run(
            [helper, "-o", options, "--", place],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise CannotMount(done.stderr.decode(errors="replace").strip()[-300:] or f"{helper} failed")
        return _received(ours)


def _received(ours: socket.socket) -> int:
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    if not descriptors:
        raise CannotMount("fusermount3 gave no device")
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def _needed() -> str:
    if os.geteuid() == 0:
        return "root may mount nothing on this machine (it has no CAP_SYS_ADMIN)"
    return "only root can, or who has fusermount3 (the package fuse3)"


def _helper() -> str:
    return next((found for found in map(shutil.which, _HELPERS) if found), "")


def _call(name: str, *arguments: object) -> int:
    taken: List[object] = [
        ctypes.c_ulong(each) if isinstance(each, int) and name == "mount" else each for each in arguments
    ]
    return int(getattr(ctypes.CDLL(None, use_errno=True), name)(*taken))
