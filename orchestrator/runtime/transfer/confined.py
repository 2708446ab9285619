"""Access to paths inside a folder, one name at a time, without ever following a link."""

from __future__ import annotations

import os
import stat
from typing import Iterator, List, Optional, Tuple

from .entries import raw
from .frames import PIECE

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Confined:
    """Paths below `root`, which must be a folder and no link. OSError if a parent in a path is not a folder.

    The folders above the last requested path stay open, so that sorted paths cost little. Call `forget` after
    folders have been removed.
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
        """Return the folder that contains `path`, as a descriptor that this object closes, and the last name
        of `path`."""
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
        """Return the status of `path` itself, without following a link; None if there is nothing."""
        try:
            folder, name = self.at(path)
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_file(self, path: str) -> int:
        """Return a descriptor for reading the regular file at `path`. Raises OSError for anything else."""
        folder, name = self.at(path)
        fd = os.open(name, _FILE, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(f"{path} is not a regular file")
        return fd

    def create_file(self, path: str) -> int:
        """Return a descriptor for writing the new file at `path`, which only the user may read."""
        folder, name = self.at(path)
        return os.open(name, _NEW, 0o600, dir_fd=folder)

    def remove(self, path: str) -> None:
        """Remove `path`; a folder must be empty. Does nothing if it does not exist."""
        folder, name = self.at(path)
        try:
            _remove(folder, name)
        except PermissionError:
            # A run may have made the folder read-only.
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
    """Yield the content of an open file, which is closed at the end."""
    try:
        while True:
            piece = os.read(fd, PIECE)
            if not piece:
                return
            yield piece
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
