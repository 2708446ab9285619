"""Mounts that one process alone sees: a folder seems to lie elsewhere, and nothing changes for others.

Linux only. As root, or where the system lets anybody have user namespaces; otherwise Refused.
"""

from __future__ import annotations

import ctypes
import os
from typing import List, Sequence

_NEW_MOUNTS = 0x00020000
_NEW_USER = 0x10000000
_BIND = 4096
_RECURSIVE = 16384
_PRIVATE = 1 << 18


class Refused(Exception):
    """The system lets this process have no mounts of its own. Holds the reason."""


def mount_all(pairs: Sequence[Sequence[str]]) -> None:
    """Each [source, target] of folders: from here on, for this process and its children, target shows source.

    Sources mean what they are before the first mount; targets are mounted in order. The process must have
    one thread only. Raises Refused.
    """
    try:
        _own_namespace()
        sources = [os.open(source, os.O_PATH | os.O_DIRECTORY) for source, _ in pairs]
        for descriptor, (_, target) in zip(sources, pairs):  # noqa: B905 (Python 3.9 has no strict)
            _mount(f"/proc/self/fd/{descriptor}", target, _BIND | _RECURSIVE)
        _close(sources)
    except OSError as error:
        raise Refused(f"{error.strerror}: {error.filename or 'mount'}") from error


def _own_namespace() -> None:
    """Mounts of our own; where only a user namespace may have them, one in which we are who we are."""
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
    _mount("none", "/", _RECURSIVE | _PRIVATE)


def _mount(source: str, target: str, flags: int) -> None:
    _call("mount", os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None, path=target)


def _call(name: str, *arguments: object, path: str = "") -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path or name)


def _close(descriptors: List[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
