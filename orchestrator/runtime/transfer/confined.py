"""A folder whose inside is reached one name at a time, and never through a link."""

from __future__ import annotations

import os
import stat
from typing import Iterator, List, Optional, Tuple

from .entries import raw
from .frames import PIECE

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Confined:
    """Paths below `root`, which must be a folder and no link. OSError where a part of a path is no folder.

    The folders above the path asked for last stay open, so paths in order cost little. `forget` them
    when folders have been removed.
    """

    def __init__(self, root: str) -> None:
        self.fd = os.open(raw(root), _FOLDER)
        self._open: List[Tuple[str, int]] = []

    def __enter__(self) -> Confined:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()
        os.close(self.fd)

    def at(self, path: str) -> Tuple[int, bytes]:
        """The folder that holds `path`, as a descriptor that stays ours, and the name in it."""
        *above, name = path.split("/")
        same = 0
        while same < min(len(above), len(self._open)) and self._open[same][0] == above[same]:
            same += 1
        self._close_from(same)
        for part in above[same:]:
            last = self._open[-1][1] if self._open else self.fd
            self._open.append((part, os.open(raw(part), _FOLDER, dir_fd=last)))
        return (self._open[-1][1] if self._open else self.fd), raw(name)

    def forget(self) -> None:
        self._close_from(0)

    def look(self, path: str) -> Optional[os.stat_result]:
        """What is at `path`, itself and not what it points to; None where nothing is."""
        try:
            folder, name = self.at(path)
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_file(self, path: str) -> int:
        """A descriptor to read the regular file at `path`."""
        folder, name = self.at(path)
        fd = os.open(name, _FILE, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(f"{path} is no regular file")
        return fd

    def remove(self, path: str) -> None:
        """Remove what is at `path`; a folder must be empty. Absent is success."""
        folder, name = self.at(path)
        try:
            _remove(folder, name)
        except PermissionError:
            # A folder of ours may have been made read-only by what ran in it.
            os.fchmod(folder, 0o700)
            _remove(folder, name)

    def make_folder(self, path: str, mode: int) -> None:
        folder, name = self.at(path)
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            pass
        self.set_mode(path, mode | 0o700)

    def make_link(self, path: str, target: str) -> None:
        folder, name = self.at(path)
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass
        os.symlink(raw(target), name, dir_fd=folder)

    def set_mode(self, path: str, mode: int) -> None:
        folder, name = self.at(path)
        fd = os.open(name, _FILE, dir_fd=folder)
        try:
            os.fchmod(fd, mode & 0o777)
        finally:
            os.close(fd)

    def _close_from(self, depth: int) -> None:
        while len(self._open) > depth:
            os.close(self._open.pop()[1])


def _remove(folder: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        try:
            os.rmdir(name, dir_fd=folder)
        except NotADirectoryError:
            raise PermissionError(f"{name!r} cannot be removed") from None


def pieces(fd: int) -> Iterator[bytes]:
    """The content of an open file, closed at the end."""
    try:
        while True:
            piece = os.read(fd, PIECE)
            if not piece:
                return
            yield piece
    finally:
        os.close(fd)
