"""Mounts that only one process sees: a folder appears elsewhere, and nothing changes for others.

Linux 5.2 or later, as root, or if the system allows user namespaces for everybody; otherwise Refused.
"""

from __future__ import annotations

import ctypes
import os
from typing import Sequence

_NEW_MOUNTS = 0x00020000
_NEW_USER = 0x10000000
_RECURSIVE = 16384
_PRIVATE = 1 << 18

_OPEN_TREE = 428
_MOVE_MOUNT = 429
"""Numbers of system calls, the same on all architectures; Linux 5.2 or later."""

_CLONE = 1
_CLOSE_ON_EXEC = os.O_CLOEXEC
_WITH_SUBMOUNTS = 0x8000
_EMPTY_PATH = 4
_HERE = -100


class Refused(Exception):
    """The system allows this process no mounts of its own. Contains the reason."""


def mount_all(pairs: Sequence[Sequence[str]]) -> None:
    """Mount each [source, target] of folders, for this process and its children: target shows source.

    Sources are resolved before the first mount; targets are mounted in order. The process must have only one
    thread. Raises Refused.
    """
    try:
        _own_namespace()
        trees = [_cloned(source) for source, _ in pairs]
        for tree, (_, target) in zip(trees, pairs):  # noqa: B905 (Python 3.9 has no strict)
            _put(tree, target)
    except OSError as error:
        raise Refused(f"{error.strerror}: {error.filename or 'mount'}") from error


def _own_namespace() -> None:
    """Create a mount namespace; if needed inside a user namespace that keeps this user's id."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _NEW_MOUNTS)
    except OSError:
        _call("unshare", _NEW_USER | _NEW_MOUNTS)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    _call("mount", b"none", b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None)


def _cloned(folder: str) -> int:
    """Return a descriptor of what is now visible below a folder, including other mounts, not mounted
    anywhere.
    """
    flags = _CLONE | _CLOSE_ON_EXEC | _WITH_SUBMOUNTS
    return _call("syscall", _OPEN_TREE, _HERE, os.fsencode(folder), ctypes.c_uint(flags), path=folder)


def _put(tree: int, target: str) -> None:
    arguments = (tree, b"", _HERE, os.fsencode(target), ctypes.c_uint(_EMPTY_PATH))
    _call("syscall", _MOVE_MOUNT, *arguments, path=target)
    os.close(tree)


def _call(name: str, *arguments: object, path: str = "") -> int:
    library = ctypes.CDLL(None, use_errno=True)
    found = getattr(library, name)(*arguments)
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path or name)
    return int(found)
