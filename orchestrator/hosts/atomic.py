"""Write files that appear complete or not at all, even if their writer is killed."""

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
    """Open a file that replaces `place` if the block succeeds; otherwise `place` stays unchanged.

    If `place` is a link, the link is replaced, not followed. Files that killed writers of `place` left are
    removed. Content and name are on the disk when the block ends.
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
    """Wait until the names in a folder are on the disk, if its file system supports that."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # EINVAL: some network file systems
            os.fsync(handle)
    finally:
        os.close(handle)


def atomic_write(place: Path, content: bytes, mode: int = 0o644) -> None:
    """Write `content` to `place`, completely or not at all."""
    with atomic_file(place, mode) as file:
        file.write(content)


def remove_abandoned(folder: Path, name: str | None = None) -> None:
    """Remove unfinished files and folders in `folder` whose writer was killed; only those of `name`, if
    given.

    Their names contain the process id of the writer. Errors are ignored.
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
    """Create a folder in `parent` for the block. Folders of the same `name` that killed programs left are
    removed.
    """
    remove_abandoned(parent, name)
    prefix = f".{name}.{os.getpid()}."
    with tempfile.TemporaryDirectory(dir=parent, prefix=prefix, suffix=".part") as made:
        yield Path(made)


def new_folder(parent: Path) -> Path:
    """Create a folder in `parent` that is renamed once it is complete. Unfinished folders older than a day
    are removed.

    Age decides rather than a process id, because several computers may share `parent`.
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
