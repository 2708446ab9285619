"""Local files that a store writes and reads: written atomically; errors of this computer become
LocalError.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import LocalError


@contextlib.contextmanager
def placed(into: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `into` if the block succeeds; otherwise it is removed."""
    with local(into):
        into.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(into)
        handle, name = tempfile.mkstemp(
            dir=into.parent, prefix=f".{into.name[:100]}.{os.getpid()}.", suffix=".part"
        )
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            with local(into):
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
        with local(into):
            Path(name).replace(into)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _remove_abandoned(into: Path) -> None:
    """Remove files that killed writers of `into` left; their names contain the process id."""
    form = re.compile(re.escape(f".{into.name[:100]}.") + r"(\d{1,9})\.\w+\.part")
    with os.scandir(into.parent) as entries:
        found = [(entry.path, form.fullmatch(entry.name)) for entry in entries]
    for path, named in found:
        if named and not _alive(int(named[1])):
            Path(path).unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def read_content(path: Path) -> bytes:
    with local(path):
        return path.read_bytes()


@contextlib.contextmanager
def local(path: Path) -> Iterator[None]:
    """Translate errors of this computer to LocalError."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise LocalError(f"{path}: {why}.") from error
