"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def whole(place: Path, mode: int = 0o644) -> Iterator[BinaryIO]:
    """A file to write that replaces `place` when all went well; otherwise `place` stays as it was."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        raise IsADirectoryError(21, "Is a folder", str(place))
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:100]}.", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        part.replace(place)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
