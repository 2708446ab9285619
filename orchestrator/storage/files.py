"""A store in a folder on this computer, or on a disk that several computers mount.

Each object is one file, named by its key. It is written under a unique name in `.orch-store/new`, flushed,
and renamed while a file lock for its key is held. Readers therefore see the old object or the new one, a
killed writer leaves the old one, and its lock is released with its process. Every write is a new file, so
inode, change time and size together are its version. Its hash is kept as an extended attribute if the file
system has those.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import Changed, Corrupt, LocalError, Missing, StorageError, StorageFault
from orchestrator.model.store_keys import RESERVED, check_key, check_prefix
from orchestrator.model.stores import LARGEST_GET, Grant, Link, Stored

from .placing import local, placed

_ATTRIBUTE = "user.orch.sha256"
_CHUNK = 1 << 20
_ABANDONED_S = 86400.0
_LOCKS = 256
_PLAIN = re.compile(r"[^a-z0-9._@+=,~ -]")
"""Characters that are written as %XX if the file system does not distinguish upper and lower case."""


class FileStore:
    """A store in `folder`, an absolute path. `sensitive`: whether the file system distinguishes "A" from "a";
    None tests it.
    """

    def __init__(self, folder: Path, sensitive: bool | None = None) -> None:
        self._folder = folder
        self._own = folder / RESERVED
        self._sensitive = sensitive
        self.url = folder.as_uri()

    def region(self) -> str:
        return ""

    def put(self, key: str, content: bytes | Path) -> Stored:
        with self._written(key, content) as new, self._locked(key):
            return self._rename(key, new)

    def put_if(self, key: str, content: bytes, expected: str | None) -> Stored:
        with self._written(key, content) as new, self._locked(key):
            self._require(key, expected)
            return self._rename(key, new)

    def get(self, key: str, version: str | None = None) -> bytes:
        with self._opened(key, version) as (file, stored):
            if stored.size > LARGEST_GET:
                raise StorageError(StorageFault.TOO_LARGE, f"{key} in {self.url} has {stored.size} bytes.")
            with local(self._folder):
                content = file.read(stored.size + 1)
            self._verify(stored, len(content), hashlib.sha256(content).hexdigest())
            return content

    def fetch(self, key: str, into: Path, version: str | None = None) -> Stored:
        with self._opened(key, version) as (file, stored), placed(into) as copy:
            with local(into):
                size, digest = _copy(file, copy, stored.size + 1)
            self._verify(stored, size, digest)
            return stored

    def head(self, key: str) -> Stored | None:
        try:
            with self._opened(key, None) as (_, stored):
                return stored
        except Missing:
            return None

    def list(self, prefix: str = "") -> Iterator[Stored]:
        check_prefix(prefix)
        start = prefix.rpartition("/")[0]
        folder = self._path(start) if start else self._folder
        yield from self._below(folder, f"{start}/" if start else "", prefix)

    def delete(self, key: str, expected: str | None = None) -> None:
        path = self._path(key)
        if not self._folder.is_dir():
            return
        with self._locked(key):
            found = self.head(key)
            if found is None:
                return
            if expected is not None and found.version != expected:
                raise Changed(self.url, key, expected=expected, found=found.version)
            with local(path):
                path.unlink(missing_ok=True)
                _sync(path.parent)
            self._prune(path.parent)

    def link(self, key: str, lasts: float, version: str | None = None) -> Link | None:  # noqa: ARG002
        return None

    def grant(self, prefix: str, lasts: float) -> Grant | None:  # noqa: ARG002
        return None

    def _path(self, key: str) -> Path:
        parts = check_key(key).split("/")
        if not self._tells_case():
            parts = [_PLAIN.sub(_escaped, part) for part in parts]
        path = self._folder
        for part in parts:
            path = path / part
            if os.path.islink(path):  # noqa: PTH114 - no path is too long for it
                raise StorageError(StorageFault.KEY, f"{path} is a link, and a store follows no links.")
        return path

    def _key(self, name: str) -> str:
        if self._tells_case():
            return name
        return re.sub("(?:%[0-9a-f]{2})+", lambda m: bytes.fromhex(m[0].replace("%", "")).decode(), name)

    def _tells_case(self) -> bool:
        if self._sensitive is None:
            with contextlib.suppress(OSError):
                self._own.mkdir(parents=True, exist_ok=True)
            self._sensitive = not (self._folder / RESERVED.upper()).exists()
        return self._sensitive

    @contextlib.contextmanager
    def _written(self, key: str, content: bytes | Path) -> Iterator[_New]:
        """Yield a complete and flushed file with that content; it is removed unless it was renamed."""
        self._path(key)
        waiting = self._own / "new"
        with local(waiting):
            waiting.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(waiting)
            handle, name = tempfile.mkstemp(dir=waiting)
        new = _New(Path(name))
        try:
            with local(content if isinstance(content, Path) else new.path), os.fdopen(handle, "wb") as file:
                new.size, new.sha256 = _fill(file, content)
                _complete(file, new.sha256)
            yield new
        finally:
            new.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Hold the file lock for that key. The kernel releases it when the process ends."""
        number = int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) % _LOCKS
        path = self._own / "locks" / f"{number:02x}"
        with local(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            with local(path):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _rename(self, key: str, new: _New) -> Stored:
        path = self._path(key)
        version = _version(new.path.stat())
        with self._no_folder(key), local(path):
            while True:
                gained = _make_folders(path.parent)
                try:
                    new.path.replace(path)
                    break
                except FileNotFoundError:
                    new.path.stat()  # another process had removed the empty folder meanwhile
            for folder in (*gained, path.parent):
                _sync(folder)
        return Stored(key, new.size, version, f"sha256:{new.sha256}")

    @contextlib.contextmanager
    def _no_folder(self, key: str) -> Iterator[None]:
        """Return the error for a key that no file can have: it is the folder of other keys, or too long."""
        try:
            yield
        except LocalError as error:
            number = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
            if number in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY):
                raise StorageError(
                    StorageFault.KEY,
                    f"{key} cannot be stored in {self.url}: its file or folder has the name of another "
                    "key's folder or file.",
                ) from error
            if number == errno.ENAMETOOLONG:
                raise StorageError(
                    StorageFault.KEY, f"A part of {key} is too long for a file of {self.url}."
                ) from error
            raise

    def _require(self, key: str, expected: str | None) -> None:
        found = self.head(key)
        version = found.version if found else None
        if version != expected:
            raise Changed(self.url, key, expected=expected, found=version)

    @contextlib.contextmanager
    def _opened(self, key: str, version: str | None) -> Iterator[tuple[BinaryIO, Stored]]:
        path = self._path(key)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                raise Missing(self.url, key) from None
            raise LocalError(f"{path}: {error.strerror}.") from error
        with os.fdopen(handle, "rb") if stat.S_ISREG(os.fstat(handle).st_mode) else _closed(handle) as file:
            if file is None:
                raise Missing(self.url, key)
            stored = self._stored(key, file.fileno())
            if version is not None and stored.version != version:
                raise Changed(self.url, key, expected=version, found=stored.version)
            yield file, stored

    def _stored(self, key: str, file: int | Path) -> Stored:
        facts = os.stat(file)  # noqa: PTH116
        return Stored(key, facts.st_size, _version(facts), _remembered(file))

    def _verify(self, stored: Stored, size: int, sha256: str) -> None:
        if size != stored.size:
            raise Corrupt(self.url, stored.key, f"it has {size} bytes, not {stored.size}.")
        if stored.checksum and stored.checksum != f"sha256:{sha256}":
            raise Corrupt(self.url, stored.key, f"its SHA-256 is {sha256}, not {stored.checksum[7:]}.")

    def _below(self, folder: Path, start: str, prefix: str) -> Iterator[Stored]:
        """Yield the objects of a folder, in the order of their keys."""
        for key, entry in sorted(self._entries(folder, start), key=lambda found: os.fsencode(found[0])):
            if key == f"{RESERVED}/" or not (key.startswith(prefix) or prefix.startswith(key)):
                continue
            if key.endswith("/"):
                yield from self._below(Path(entry.path), key, prefix)
            elif entry.is_file(follow_symlinks=False):
                check_key(key)
                with contextlib.suppress(FileNotFoundError):
                    yield self._stored(key, Path(entry.path))

    def _entries(self, folder: Path, start: str) -> Sequence[tuple[str, os.DirEntry[str]]]:
        """Return the entries of a folder with their keys; the key of a folder ends with a slash."""
        try:
            with os.scandir(folder) as found:
                return [(start + self._key(e.name) + "/" * e.is_dir(follow_symlinks=False), e) for e in found]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise LocalError(f"{folder}: {error.strerror}.") from error

    def _prune(self, folder: Path) -> None:
        """Remove empty folders. A writer that loses its folder to this creates it again."""
        with contextlib.suppress(OSError):
            while folder != self._folder:
                folder.rmdir()
                folder = folder.parent


class _New:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.sha256 = ""


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in found[0].encode())


def _version(facts: os.stat_result) -> str:
    return f"{facts.st_ino:x}-{facts.st_mtime_ns:x}-{facts.st_size:x}"


def _fill(file: BinaryIO, content: bytes | Path) -> tuple[int, str]:
    if isinstance(content, bytes):
        file.write(content)
        return len(content), hashlib.sha256(content).hexdigest()
    with open(content, "rb") as source:
        return _copy(source, file, None)


def _copy(source: BinaryIO, target: BinaryIO, most: int | None) -> tuple[int, str]:
    """Copy at most `most` bytes; returns their number and SHA-256."""
    digest, size = hashlib.sha256(), 0
    while chunk := source.read(_CHUNK if most is None else min(_CHUNK, most - size)):
        target.write(chunk)
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def _complete(file: BinaryIO, sha256: str) -> None:
    """Flush a file to the disk, with its hash and a unique time.

    The kernel's own times change only every few milliseconds, and an inode may be reused within that time.
    """
    file.flush()
    handle = file.fileno()
    os.fchmod(handle, 0o644)
    if hasattr(os, "setxattr"):
        with contextlib.suppress(OSError):
            os.setxattr(handle, _ATTRIBUTE, sha256.encode())
    now = time.time_ns()
    os.utime(handle, ns=(now, now))
    os.fsync(handle)


def _remembered(file: int | Path) -> str:
    """Return the checksum that was stored with the file; "" if the file system stores none."""
    if not hasattr(os, "getxattr"):
        return ""
    try:
        kept = os.getxattr(file, _ATTRIBUTE)
    except OSError:
        return ""
    return f"sha256:{kept.decode()}" if re.fullmatch(rb"[0-9a-f]{64}", kept) else ""


def _make_folders(folder: Path) -> list[Path]:
    """Create a folder and its parents; returns the folders in which an entry was created."""
    if folder.is_dir():
        return []
    made = _make_folders(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(folder)) from None
    return [*made, folder.parent]


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_abandoned(folder: Path) -> None:
    """Remove files of killed writers. Age decides, because several computers may share the folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.stat(follow_symlinks=False).st_mtime < time.time() - _ABANDONED_S:
                Path(entry.path).unlink(missing_ok=True)


@contextlib.contextmanager
def _closed(handle: int) -> Iterator[None]:
    os.close(handle)
    yield None
