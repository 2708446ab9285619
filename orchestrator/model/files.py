"""Read files that a run left, within a size limit: never through a link, from a device, or from a pipe."""

from __future__ import annotations

import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

from .answers import Malformed
from .plain import plain

_LONGEST = 4096

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading, without blocking.

    Raise FileNotFoundError if it does not exist, and Malformed if it cannot be read or is a link, a device, a
    pipe or a folder.
    """
    try:
        handle = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise Malformed(_why(path, error)) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Malformed("it is not a regular file")
    return os.fdopen(handle, "rb")


def write_new(path: Path, content: bytes) -> None:
    """Create a file with this content. Raise OSError; FileExistsError if the path exists."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def open_to_write(path: Path) -> int:
    """Open a regular file for writing and return its descriptor. The file is created if it does not exist;
    its content stays.

    Raise OSError, and Malformed if the path is a link, a device, a pipe or a folder.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | _FLAGS, 0o644)
    except OSError as error:
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise Malformed("it is not a regular file") from None
        raise error from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Malformed("it is not a regular file")
    return handle


def regular_bytes(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file.

    Raises as `open_regular`, and Malformed if the file has more than `most` bytes.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise Malformed(f"it has {size:,} bytes, more than the {most:,} that are allowed")
        data = file.read(most + 1)
    if len(data) > most:
        raise Malformed(f"it grew beyond the {most:,} bytes that are allowed")
    return data


def first_bytes(path: Path, most: int) -> bytes:
    """Return the first `most` bytes of a regular file; b"" if it does not exist or cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(most)
    except (OSError, Malformed):
        return b""


def first_line(path: Path) -> str:
    """Return the first line of a text file, without control characters, cut at 4096 characters; "" as
    first_bytes.
    """
    text = first_bytes(path, 4 * _LONGEST).decode("utf-8", "replace")
    return plain(text.split("\n")[0])[:_LONGEST]


def last_bytes(path: Path, most: int) -> bytes:
    """Return the last `most` bytes of a regular file; b"" if it does not exist or cannot be read."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read(most)
    except (OSError, Malformed):
        return b""


def sha256_of(path: Path, most: int = 1 << 32) -> str:
    """Return the SHA-256 of the file that `path` leads to; "" if it is not regular, or has more than
    `most` bytes.
    """
    try:
        with open_regular(path.resolve()) as file:
            if os.fstat(file.fileno()).st_size > most:
                return ""
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, RuntimeError, ValueError):
        return ""


def _why(path: Path, error: OSError | ValueError) -> str:
    if path.is_symlink():
        return "it is a link"
    return f"it cannot be read ({error.strerror if isinstance(error, OSError) else error})"
