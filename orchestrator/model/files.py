"""A file that a run left, as bytes within a limit: never a link's target, a device, a pipe, or a flood."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .answers import Malformed

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def regular_bytes(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes.

    Raises FileNotFoundError where there is none, and Malformed where it cannot be read, is a link, a device,
    a pipe or a folder, or is larger.
    """
    try:
        handle = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Malformed(_why(path, error)) from None
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode):
        os.close(handle)
        raise Malformed("it is no regular file")
    with os.fdopen(handle, "rb") as file:
        if facts.st_size > most:
            raise Malformed(f"it has {facts.st_size:,} bytes, more than the {most:,} that it can have")
        data = file.read(most + 1)
    if len(data) > most:
        raise Malformed(f"it grows beyond the {most:,} bytes that it can have")
    return data


def _why(path: Path, error: OSError) -> str:
    if path.is_symlink():
        return "it is a link"
    return f"it cannot be read ({error.strerror})"
