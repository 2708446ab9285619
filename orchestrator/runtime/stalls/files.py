"""Find the files that feed the training, and move them out of the page cache or into it, without root."""

# Close to the kernel: descriptors need os calls, not pathlib.
# ruff: noqa: PTH100, PTH113, PTH116, PTH208

from __future__ import annotations

import os
import sys
from time import perf_counter
from typing import Any, Dict, Iterable, List, Tuple

from ..observe.files import _read_only
from ..observe.project import of_environment

MOST = 200_000
"""Files that are known at once."""

WARM_BYTES = 512 << 20
"""Bytes read ahead of a warm window; of more, a window finds those that the windows before it read."""

WARM_SECONDS = 3.0

_MISSES = 64
_RATE_BYTES, _RATE_FILES = 64 << 20, 256
_CODE = (".py", ".pyc", ".pyi", ".so", ".dylib", ".dll")
_WRITES = os.O_WRONLY | os.O_RDWR


class Known:
    """Files that were passed to tf.data, opened by Python, or seen open. It never raises into the job."""

    def __init__(self, ours: Iterable[str]) -> None:
        self._ours = tuple(os.path.abspath(path) + os.sep for path in ours if path)
        self._paths: Dict[str, None] = {}
        self._written: set[str] = set()

    def listen(self) -> None:
        """From now on, note what Python opens."""
        sys.addaudithook(self._audit)

    def named(self, paths: Iterable[Any], _way: str = "") -> None:
        """Note paths that the program passed to a reader; text that is no existing file is skipped."""
        misses = 0
        for path in paths:
            text = os.path.abspath(os.fsdecode(path))
            if os.path.isfile(text):
                self._add(text)
            else:
                misses += 1
            if misses > _MISSES:
                return

    def made(self, paths: Iterable[Any]) -> None:
        """Note files that the program writes: they are not its input until they are named again."""
        self._written.update(os.path.abspath(os.fsdecode(path)) for path in paths)

    def look(self) -> None:
        """Add the files that this process has open for reading now."""
        try:
            numbers = [name for name in os.listdir("/proc/self/fd") if int(name) > 2]
        except (OSError, ValueError):
            return
        self.named(filter(None, map(_read_only, numbers)))

    def list(self) -> List[Tuple[str, int]]:
        """Return (path, bytes) of the files that exist now."""
        found = []
        for path in list(self._paths):
            try:
                found.append((path, os.stat(path).st_size))
            except OSError:
                continue
        return found

    def _audit(self, event: str, arguments: Tuple[Any, ...]) -> None:
        if event != "open":
            return
        try:
            path, _, flags = arguments
            if isinstance(path, (str, bytes)) and not int(flags or 0) & _WRITES:
                self._add(os.path.abspath(os.fsdecode(path)))
        except Exception:
            return

    def _add(self, path: str) -> None:
        strange = path.startswith((*self._ours, "/proc/", "/sys/", "/dev/")) or path.endswith(_CODE)
        if not strange and len(self._paths) < MOST and not of_environment(path):
            self._paths[path] = None


def chill(paths: Iterable[str]) -> int:
    """Drop files from the page cache; returns for how many this could be requested. Written pages are flushed
    first.
    """
    done = 0
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            done += 1
        except OSError:
            pass
        finally:
            os.close(descriptor)
    return done


def warm(files: Iterable[Tuple[str, int]]) -> None:
    """Read files (path, bytes) once, so that they are in the page cache, for a few seconds at most."""
    left, until = WARM_BYTES, perf_counter() + WARM_SECONDS
    block = bytearray(1 << 20)
    for path, size in files:
        left -= size
        if left < 0 or perf_counter() > until:
            return
        try:
            with open(path, "rb", buffering=0) as file:
                while file.readinto(block):
                    pass
        except OSError:
            continue


def another_disk(files: Iterable[Tuple[str, int]], folder: str) -> bool:
    """Whether any of the files is on another device than `folder`."""
    here = os.stat(folder).st_dev
    return any(os.stat(path).st_dev != here for path, _ in files)


def copied(files: Iterable[Tuple[str, int]], folder: str, most: int) -> Dict[str, str]:
    """Copy files below `folder`, at most `most` bytes; returns original -> copy, all of them or none."""
    import shutil

    listed = list(files)
    if sum(size for _, size in listed) > most:
        return {}
    there = {}
    for path, _ in listed:
        copy = os.path.join(folder, path.lstrip("/"))  # noqa: PTH118
        os.makedirs(os.path.dirname(copy), exist_ok=True)  # noqa: PTH103, PTH120
        shutil.copyfile(path, copy)
        there[path] = copy
    return there


def read_rate(paths: Iterable[str]) -> float:
    """Return the bytes a second at which these files are read from their disk, measured on a few; 0 if there
    are none.
    """
    chosen: List[Tuple[str, int]] = []
    size = 0
    for path in paths:
        if size < _RATE_BYTES and len(chosen) < _RATE_FILES:
            chosen.append((path, os.stat(path).st_size))
            size += chosen[-1][1]
    chill(path for path, _ in chosen)
    began = perf_counter()
    warm(chosen)
    return size / (perf_counter() - began) if size else 0.0
