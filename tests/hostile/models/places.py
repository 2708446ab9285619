"""Start a command as an ordinary user, on a kernel that refuses named system calls. Standard library only.

argv: a JSON object with `ordinary`, `refused` (names of _CALLS), `needed` (folders), then the command.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

_ORDINARY = 12345
_CALLS = {
    "x86_64": {"unshare": 272, "landlock": 444, "prctl": 157},
    "aarch64": {"unshare": 97, "landlock": 444, "prctl": 167},
}
_SECCOMP = 22
_LIBC = ctypes.CDLL(None, use_errno=True)


class Filter(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter)))


def possible() -> bool:
    return sys.platform.startswith("linux") and platform.machine() in _CALLS


def refuse(names: list[str]) -> None:
    """Refuse these calls with EPERM to this process and its children, of prctl only the one for seccomp."""
    calls = _CALLS[platform.machine()]
    lines = [(0x20, 0, 0, 0)]  # load the number
    for name in names:
        if name == "prctl":
            lines += [(0x15, 0, 4, calls[name]), (0x20, 0, 0, 16), (0x15, 0, 1, _SECCOMP)]
            lines += [(0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
        else:
            lines += [(0x15, 0, 1, calls[name]), (0x06, 0, 0, 0x00050001)]
    lines.append((0x06, 0, 0, 0x7FFF0000))
    program = Program(len(lines), (Filter * len(lines))(*(Filter(*each) for each in lines)))
    zero = ctypes.c_ulong(0)
    assert _LIBC.prctl(38, ctypes.c_ulong(1), zero, zero, zero) == 0
    assert _LIBC.prctl(_SECCOMP, ctypes.c_ulong(2), ctypes.byref(program), zero, zero) == 0


def become_ordinary(needed: list[str]) -> None:
    """Of root make a user who owns nothing; `needed` folders below closed ones, as /root, stay in reach."""
    assert _LIBC.unshare(ctypes.c_int(0x20000)) == 0
    mount("--make-rprivate", "/")
    for place, closed in closed_above(needed).items():
        holder = tempfile.mkdtemp()
        mount("-t", "tmpfs", "-o", "mode=755", "none", holder)
        for number, folder in enumerate(closed):
            (Path(holder) / str(number)).mkdir()
            mount("--rbind", folder, f"{holder}/{number}")
        mount("-t", "tmpfs", "-o", "mode=755", "none", place)
        for number, folder in enumerate(closed):
            Path(folder).mkdir(parents=True, exist_ok=True)
            mount("--rbind", f"{holder}/{number}", folder)
        subprocess.run(["umount", "-l", holder], check=True)
        Path(holder).rmdir()
    os.setgroups([])
    os.setgid(_ORDINARY)
    os.setuid(_ORDINARY)


def closed_above(needed: list[str]) -> dict[str, list[str]]:
    """Folder that others may not pass, outermost -> the needed folders below it."""
    found: dict[str, list[str]] = {}
    for folder in needed:
        above = [each for each in reversed(Path(folder).parents) if not each.stat().st_mode & 1]
        if above:
            found.setdefault(str(above[0]), []).append(folder)
    return found


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def main(argv: list[str]) -> None:
    ask = json.loads(argv[0])
    if ask["ordinary"] and os.geteuid() == 0:
        become_ordinary(ask["needed"])
    if ask["refused"]:
        refuse(ask["refused"])
    os.execv(argv[1], argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
