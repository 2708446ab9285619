"""Landlock: read only below named paths, write only to one folder, no TCP, no signals to other processes."""

from __future__ import annotations

import ctypes
import os
import stat
from typing import Iterable

from . import libc

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
_IN_SCRATCH = _WRITE_FILE | _READ_FILE | _READ_DIR | _TRUNCATE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8
"""Also: remove folders and files, create folders and regular files."""
_OF_FILES = 1 << 0 | _WRITE_FILE | _READ_FILE | _TRUNCATE
_ABI_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_FILES, _ALL_TCP, _ALL_SCOPES = (1 << 16) - 1, 0b11, 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def restrict(read: Iterable[str], scratch: str) -> bool:
    """Restrict this process; returns False if the kernel refuses. Executing is never allowed."""
    try:
        abi = libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
        ruleset = _ruleset(abi)
        try:
            handled = _ABI_FILES.get(abi, _ALL_FILES)
            for path in read:
                _allow(ruleset, path, (_READ_FILE | _READ_DIR) & handled)
            _allow(ruleset, scratch, _IN_SCRATCH & handled)
            libc.no_new_privileges()
            libc.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
        finally:
            os.close(ruleset)
    except OSError:
        return False
    return True


def _ruleset(abi: int) -> int:
    rules = _Ruleset(
        _ABI_FILES.get(abi, _ALL_FILES), _ALL_TCP if abi >= 4 else 0, _ALL_SCOPES if abi >= 6 else 0
    )
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    return libc.syscall(_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))


def _allow(ruleset: int, path: str, access: int) -> None:
    """Allow `access` below `path`; a path that does not exist is ignored."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _OF_FILES
        rule = _Rule(access, fd)
        libc.syscall(_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(fd)
