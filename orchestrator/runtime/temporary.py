"""Temporary folders: shared ones, and one for each run."""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH118, PTH208

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import contextmanager
from typing import Dict, Iterator, Mapping, Tuple

from . import processes

EVERYBODYS = ("/tmp", "/var/tmp")

_PREFIX = "orch-run-"
_ATTEMPTS = 5


@contextmanager
def own_temporary(environ: Mapping[str, str]) -> Iterator[Dict[str, str]]:
    """Yield the environment with a TMPDIR of its own, which is removed at the end; unchanged if the disk is
    full.

    It lies in the usual temporary folder, and its path is short, because sockets are created in it too. It is
    locked as long as this process lives; folders that a killed process left there are removed first.
    """
    place = environ.get("TMPDIR") or tempfile.gettempdir()
    _remove_abandoned(place)
    try:
        folder, lock = _locked_folder(place)
    except OSError:
        yield dict(environ)
        return
    try:
        yield {**environ, "TMPDIR": folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked_folder(place: str) -> Tuple[str, int]:
    """Create a folder and its lock; retried if another process took the name before it was locked."""
    for _ in range(_ATTEMPTS):
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        lock = _opened(folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(lock, folder):
                return folder, lock
        except OSError:
            os.close(lock)
            raise
        os.close(lock)
    raise FileExistsError(place)


def _remove_abandoned(place: str) -> None:
    """Remove this user's folders whose supervisor is gone and which no process has as its TMPDIR."""
    try:
        names = [name for name in os.listdir(place) if name.startswith(_PREFIX)]
    except OSError:
        return
    for name in names:
        folder = os.path.join(place, name)
        try:
            lock = _opened(folder)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock, folder) and processes.with_variable("TMPDIR", folder) == []:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # locked: its supervisor lives
            pass
        finally:
            os.close(lock)


def _opened(folder: str) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_at(lock: int, folder: str) -> bool:
    """Whether the opened folder still has that name and belongs to this user."""
    try:
        now = os.lstat(folder)
    except OSError:
        return False
    return os.path.samestat(os.fstat(lock), now) and stat.S_ISDIR(now.st_mode) and now.st_uid == os.geteuid()
