"""A read-only file system of fixed names and sizes, served to the kernel by the FUSE protocol 7.31.

Names and sizes are known from the beginning; contents may come later. Opening a file whose content is missing
waits for it, or fails with EIO; since reading needs an open file, no incomplete file can be read. When this
process ends, every access fails with ENOTCONN, so an incomplete tree is never taken for complete.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional

from ..transfer.entries import Row

ROOT = 1
_MAJOR, _MINOR = 7, 31
_IN = struct.Struct("<IIQQIIIHH")
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<6Q10I")
_ENTRY = struct.Struct("<4Q2I")
_GOT = struct.Struct("<QII")
_OPENED = struct.Struct("<QII")
_READ = struct.Struct("<QQI")
_INIT = struct.Struct("<IIIIHHIIHHI28x")
_DIRENT = struct.Struct("<QQII")
_STATFS = struct.Struct("<5Q4I24x")
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ_, _STATFS_ = 1, 2, 3, 14, 15, 17
_RELEASE, _INIT_, _OPENDIR, _READDIR, _RELEASEDIR = 18, 26, 27, 28, 29
_INTERRUPT, _DESTROY, _BATCH_FORGET = 36, 38, 42
_SILENT = frozenset((_FORGET, _BATCH_FORGET))
_CHANGING = frozenset((4, 6, 8, 9, 10, 11, 12, 13, 16, 21, 24, 35, 43, 45))
"""Requests that would write. The mount is read-only, so the kernel normally refuses them itself."""
_ASYNC_READ, _PARALLEL_DIROPS, _MAX_PAGES = 1 << 0, 1 << 18, 1 << 22
_KEEP_CACHE = 1 << 1
_PAGES = 256
_FOR_EVER = 1 << 30
_BUFFER = 1 << 17
_WRITE = 4096
_BLOCK = 4096


class _Node(NamedTuple):
    """One name: its parent, and the index of its file (-1: a folder)."""

    parent: int
    is_folder: bool
    size: int
    mode: int
    file: int
    names: Dict[bytes, int]


class _Waiting(NamedTuple):
    unique: int
    node: int


class FileSystem:
    """The tree of `rows`; `files` maps each file's path to its index.

    `wanted` is called with the index of a file that is opened before its content came. `content` opens a file
    whose content is there, and returns a descriptor for reading.
    """

    def __init__(
        self,
        device: int,
        rows: List[Row],
        files: Dict[str, int],
        wanted: Callable[[int], None],
        content: Callable[[int], int],
    ) -> None:
        self._device = device
        self._nodes = _tree(rows, files)
        self._wanted = wanted
        self._content = content
        self._lock = threading.Lock()
        self._come = [False] * len(files)
        self._failed = False
        self._waiting: Dict[int, List[_Waiting]] = {}
        self._open: Dict[int, int] = {}
        self._next = 1
        self._born = int(time.time())
        self._owner = (os.geteuid(), os.getegid())

    def serve(self) -> None:
        """Answer requests until the file system is unmounted. May run in several threads at once."""
        while True:
            try:
                request = os.read(self._device, _BUFFER)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                if error.errno == errno.ENODEV:
                    return
                raise
            _, code, unique, node, *_ = _IN.unpack_from(request)
            try:
                answer = self._answer(code, unique, node, memoryview(request)[_IN.size :])
            except OSError as error:
                self._say(unique, error=error.errno or errno.EIO)
            else:
                if answer is not None:
                    self._say(unique, answer)

    # ------------------------------------------------------------ contents

    def came(self, number: int) -> None:
        """Mark a file's content as present and verified, and answer the processes that wait to open it."""
        with self._lock:
            self._come[number] = True
            waiting = self._waiting.pop(number, [])
        for each in waiting:
            try:
                self._say(each.unique, self._opened(number))
            except OSError as error:
                self._say(each.unique, error=error.errno or errno.EIO)

    def fail(self) -> None:
        """Fail with EIO whoever waits for a file, or later opens one whose content has not come."""
        with self._lock:
            self._failed = True
            waiting = [each for some in self._waiting.values() for each in some]
            self._waiting.clear()
        for each in waiting:
            self._say(each.unique, error=errno.EIO)

    def _open_or_wait(self, unique: int, node: int) -> Optional[bytes]:
        number = self._nodes[node].file
        with self._lock:
            if not self._come[number]:
                if self._failed:
                    raise OSError(errno.EIO, "the object cannot be fetched")
                self._waiting.setdefault(number, []).append(_Waiting(unique, node))
                self._wanted(number)
                return None
        return self._opened(number)

    def _opened(self, number: int) -> bytes:
        descriptor = self._content(number)
        with self._lock:
            handle, self._next = self._next, self._next + 1
            self._open[handle] = descriptor
        return _OPENED.pack(handle, _KEEP_CACHE, 0)

    def _interrupt(self, body: memoryview) -> None:
        """Answer a waiting request with EINTR, because its process was interrupted."""
        (unique,) = struct.unpack_from("<Q", body)
        with self._lock:
            found = False
            for number, some in list(self._waiting.items()):
                left = [each for each in some if each.unique != unique]
                found = found or len(left) < len(some)
                self._waiting[number] = left
        if found:
            self._say(unique, error=errno.EINTR)

    # ------------------------------------------------------------ requests

    def _answer(self, code: int, unique: int, node: int, body: memoryview) -> Optional[bytes]:
        """Return the answer; None if there is none or it follows later."""
        if code == _READ_:
            handle, offset, size = _READ.unpack_from(body)
            return os.pread(self._open[handle], size, offset)
        if code == _LOOKUP:
            return self._looked_up(node, bytes(body).rstrip(b"\0"))
        if code == _GETATTR:
            return _GOT.pack(_FOR_EVER, 0, 0) + self._attributes(node)
        if code == _OPEN:
            return self._open_or_wait(unique, node)
        if code == _RELEASE:
            os.close(self._open.pop(struct.unpack_from("<Q", body)[0]))
            return b""
        if code in (_OPENDIR, _RELEASEDIR, _DESTROY):
            return _OPENED.pack(0, _KEEP_CACHE, 0) if code == _OPENDIR else b""
        if code == _READDIR:
            _, offset, size = _READ.unpack_from(body)
            return self._listed(node, offset, size)
        return self._rarely(code, body)

    def _rarely(self, code: int, body: memoryview) -> Optional[bytes]:
        if code == _INIT_:
            return self._begun(body)
        if code == _STATFS_:
            size = sum(each.size for each in self._nodes.values())
            return _STATFS.pack(size // _BLOCK, 0, 0, len(self._nodes), 0, _BLOCK, 255, _BLOCK, 0)
        if code == _INTERRUPT:
            self._interrupt(body)
            return None
        if code in _SILENT:
            return None
        raise OSError(errno.EROFS if code in _CHANGING else errno.ENOSYS, "not supported by this file system")

    def _begun(self, body: memoryview) -> bytes:
        _, minor, ahead, flags = struct.unpack_from("<4I", body)
        if minor < _MINOR:
            raise OSError(errno.EPROTO, "the kernel is too old")
        ours = flags & (_ASYNC_READ | _PARALLEL_DIROPS | _MAX_PAGES)
        return _INIT.pack(_MAJOR, _MINOR, ahead, ours, 64, 48, _WRITE, 1, _PAGES, 0, 0)

    def _looked_up(self, parent: int, name: bytes) -> bytes:
        node = self._nodes[parent].names.get(name)
        if node is None:
            return _ENTRY.pack(0, 0, _FOR_EVER, 0, 0, 0) + bytes(_ATTR.size)  # absence is cached
        return _ENTRY.pack(node, 0, _FOR_EVER, _FOR_EVER, 0, 0) + self._attributes(node)

    def _attributes(self, node: int) -> bytes:
        about = self._nodes[node]
        blocks, links = -(-about.size // 512), 2 if about.is_folder else 1
        times = (self._born, self._born, self._born, 0, 0, 0)
        return _ATTR.pack(node, about.size, blocks, *times, about.mode, links, *self._owner, 0, _BLOCK, 0)

    def _listed(self, node: int, offset: int, size: int) -> bytes:
        """Return the folder's entries from index `offset` on, as many as fit into `size` bytes."""
        about = self._nodes[node]
        every = [(b".", node), (b"..", about.parent), *about.names.items()]
        found = bytearray()
        for place, (name, number) in enumerate(every[offset:], start=offset + 1):
            kind = stat.S_IFMT(self._nodes[number].mode) >> 12
            entry = _DIRENT.pack(number, place, len(name), kind) + name
            entry += bytes(-len(entry) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return bytes(found)

    def _say(self, unique: int, answer: bytes = b"", error: int = 0) -> None:
        try:
            os.writev(self._device, [_OUT.pack(_OUT.size + len(answer), -error, unique), answer])
        except OSError as refused:
            if refused.errno not in (errno.ENOENT, errno.ENODEV):  # the caller or the mount is gone
                raise


def _tree(rows: List[Row], files: Dict[str, int]) -> Dict[int, _Node]:
    nodes = {ROOT: _Node(ROOT, True, 0, stat.S_IFDIR | 0o555, -1, {})}
    places: Dict[str, int] = {"": ROOT}
    for number, row in enumerate(sorted(rows), start=ROOT + 1):
        above, _, name = row.path.rpartition("/")
        parent = places[above]
        kind = stat.S_IFDIR | 0o555 if row.kind == "dir" else stat.S_IFREG | 0o444
        nodes[number] = _Node(parent, row.kind == "dir", row.size, kind, files.get(row.path, -1), {})
        nodes[parent].names[os.fsencode(name)] = number
        places[row.path] = number
    return nodes
