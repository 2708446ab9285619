"""Files that appear whole or not at all, whenever their writer is killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_NEW = ".new-"
_ABANDONED_S = 86400.0


@contextlib.contextmanager
def atomic_file(place: Path, mode: int = 0o644) -> Iterator[BinaryIO]:
    """A file to write that replaces `place` when all went well; otherwise `place` stays as it was.

    A link there is replaced, not followed. What writers of `place` left that were killed is removed. Both the
    content and the name are on the disk when this ends.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        raise IsADirectoryError(21, "Is a folder", str(place))
    remove_abandoned(place.parent, place.name)
    start = f".{place.name[:100]}.{os.getpid()}."
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=start, suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        part.replace(place)
        flush_folder(place.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk. File systems that cannot be asked for it are not."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # EINVAL: some network file systems
            os.fsync(handle)
    finally:
        os.close(handle)


def atomic_write(place: Path, content: bytes, mode: int = 0o644) -> None:
    """Write `content` to `place`, whole or not at all."""
    with atomic_file(place, mode) as file:
        file.write(content)


def remove_abandoned(folder: Path, name: str | None = None) -> None:
    """Remove what is unfinished in `folder` (of `name` alone where one is given) and whose writer was killed.

    Files and folders bear their writer's process id. What cannot be removed stays.
    """
    form = re.compile((re.escape(f".{name[:100]}.") if name else r"\..+\.") + r"(\d+)\.\w+\.part")
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            named = form.fullmatch(entry.name)
            if not named or _alive(int(named[1])):
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)


@contextlib.contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """A folder in `parent` while this lasts. Removes those of the same `name` that killed programs left."""
    remove_abandoned(parent, name)
    prefix = f".{name}.{os.getpid()}."
    with tempfile.TemporaryDirectory(dir=parent, prefix=prefix, suffix=".part") as made:
        yield Path(made)


def new_folder(parent: Path) -> Path:
    """A new folder in `parent`, to be renamed when it is complete. Removes those that were left a day ago.

    Their age decides, not a process id: several computers may share `parent`.
    """
    with contextlib.suppress(OSError):
        for left in parent.glob(f"{_NEW}*"):
            if left.stat().st_mtime < time.time() - _ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_NEW, dir=parent))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
