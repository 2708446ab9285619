"""Which data files a program opens: their order, sizes and hashes; and which folders it lists.

Standard library only. There are three sources. An audit hook, from the interpreter's start, sees what Python
opens. Files that TensorFlow's C++ or another C library reads are noted where the program names them to a
dataset or a reader (see inputs, native), and otherwise found among the open files of the process when a step
is complete.
"""

# ruff: noqa: PTH100, PTH113, PTH115, PTH116, PTH120, PTH208

from __future__ import annotations

import hashlib
import os
import sys
import threading
from types import FrameType
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple
from urllib.parse import unquote

from .project import (
    Root,
    fetched_from,
    library_cache,
    module_files,
    name_of_file,
    of_environment,
    outside,
    roots,
)

MOST_FILES = 2000
"""Maximum number of files that are listed; further ones are only counted."""

MOST_MISSES = 64
"""After so many strings that name no file, the rest of a list of strings is not looked up."""

MOST_FOLDERS = 500
"""Maximum number of listed folders that are kept."""

WHOLE = 64 << 20
"""Bytes: of a larger file only the first and the last half of this size are hashed."""

MOST_BYTES = 1 << 30
"""Maximum bytes hashed in total, in the order of first opening; later files have no hash."""

_CODE = (".pyc", ".pyi", ".so", ".egg-link", ".dist-info", ".dylib", ".dll")
_WRITES = os.O_WRONLY | os.O_RDWR
_CHANGES = _WRITES | os.O_CREAT | os.O_TRUNC
_OPENING = ("open", "sqlite3.connect")
_LISTING = ("os.listdir", "os.scandir")
_RUNTIME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_IMPORTERS = ("importlib", "_frozen_importlib", "pkg_resources", "pkgutil", "zipimport")
_VENDORED = "._vendor.importlib"
_BETWEEN = frozenset(("os", "pathlib", "glob", "contextlib"))
"""Modules through which others list folders. Listings by _IMPORTERS, which search sys.path, are ignored."""


class Files:
    """The files that this process opened. Methods may be called from any thread, and never raise."""

    def __init__(self, ours: str) -> None:
        self._ours = os.path.abspath(ours) + os.sep
        self._opened: Dict[str, str] = {}
        self._folders: Dict[str, None] = {}
        self._written: set[str] = set()
        self._in_place: Dict[str, Tuple[int, int]] = {}
        self._more = 0
        self._hashes: Dict[Tuple[str, int, int], Optional[str]] = {}
        self._hashed = 0
        self._busy = threading.local()
        self._open = True
        self.tell: Optional[Callable[[str, str], None]] = None
        """If set, called at once with path and way of each new file; the way of a listed folder is
        "listed"."""

    def listen(self) -> None:
        """Note every file that Python opens. An audit hook cannot be removed; `close` disables it."""
        sys.addaudithook(self._audit)

    def close(self) -> None:
        """Stop noting files."""
        self._open = False

    def named(self, paths: Iterable[Any], way: str = "named") -> None:
        """Note files that the program named to a reader; a name that is no file is ignored.

        After MOST_MISSES such names the rest is ignored, because the strings are probably text.
        """
        misses = 0
        for path in paths:
            text = os.path.abspath(os.fsdecode(path))
            if os.path.isfile(text):
                self._add(text, way)
            else:
                misses += 1
            if misses > MOST_MISSES or self._more > MOST_FILES:
                return

    def listed(self, folder: Any) -> None:
        """Note a folder whose entries the program listed."""
        if folder is None or isinstance(folder, (str, bytes)) or hasattr(folder, "__fspath__"):
            path = os.path.abspath(os.fsdecode(folder or "."))
            ours = path.startswith((self._ours, "/proc", "/sys")) or of_environment(path + os.sep)
            if self._open and not ours and path not in self._folders and len(self._folders) < MOST_FOLDERS:
                self._folders[path] = None
                if self.tell:
                    self.tell(path, "listed")

    def made(self, paths: Iterable[Any]) -> None:
        """Note files that the program is about to write."""
        self._written.update(os.path.abspath(os.fsdecode(path)) for path in paths)

    def look(self) -> None:
        """Add the regular files that are open for reading now, by any opener."""
        try:
            numbers = [name for name in os.listdir("/proc/self/fd") if int(name) > 2]
            self.named(sorted(filter(None, map(_read_only, numbers))), "descriptor")
        except (OSError, ValueError):
            return

    def gather(self) -> Dict[str, Any]:
        """Return `list`, `left_out` and `folders`. `list` has for each file, in the order of first opening:

        name (see project.roots), path, bytes, changed (Unix seconds), sha256 (None if the budget was used
        up), whole (whether all of it is hashed), way ("python", "named" or "descriptor"), made (the program
        wrote it itself), cache (a library keeps it for itself, see project.library_cache), and fetched (see
        project.fetched_from) if it was. `left_out`: the number of further files. `folders`: absolute paths of
        the folders that were listed.
        """
        self._busy.now = True
        try:
            known = roots()
            entries = [self._entry(path, way, known) for path, way in list(self._opened.items())]
            found = [entry for entry in entries if entry]
            return {"list": found, "left_out": self._more, "folders": list(self._folders)}
        finally:
            self._busy.now = False

    def seen(self) -> Dict[str, Any]:
        """Like `gather`, without hashes: path, way and made of each file. `written`: paths opened for
        writing.
        """
        self._busy.now = True
        try:
            known = roots()
            found = [
                {"path": path, "way": way, "made": self._is_made(path), **_kept(path, known)}
                for path, way in list(self._opened.items())
                if self.is_data(path, known)
            ]
            return {
                "list": found,
                "left_out": self._more,
                "folders": list(self._folders),
                "written": sorted(filter(self._is_made, {*self._written, *self._in_place}))[:MOST_FILES],
            }
        finally:
            self._busy.now = False

    # ------------------------------------------------------------ inside

    def _audit(self, event: str, args: Tuple[Any, ...]) -> None:
        if not self._open or (event not in _OPENING and event not in _LISTING):
            return
        try:
            if event in _LISTING:
                self._heard_listing(args[0])
                return
            path, flags = (args[0], args[2]) if event == "open" else (_of_sqlite(args[0]), os.O_RDWR)
            if isinstance(path, (str, bytes)) and not getattr(self._busy, "now", False):
                self._heard(os.path.abspath(os.fsdecode(path)), int(flags or 0))
        except Exception:
            return  # an error must not reach the job

    def _heard_listing(self, folder: Any) -> None:
        if getattr(self._busy, "now", False):
            return
        if not _nobody_s(sys._getframe(2)):  # the caller of os.listdir, without _audit
            self.listed(folder)

    def _heard(self, path: str, flags: int) -> None:
        if flags & _CHANGES == os.O_RDWR and path not in self._written:
            self._heard_in_place(path)
        elif flags & _WRITES and path not in self._opened:
            self._written.add(path)
        if not flags & os.O_WRONLY:
            self._add(path, "python")

    def _heard_in_place(self, path: str) -> None:
        """Note a file that may be changed in place: np.memmap and SQLite open files so even if they only
        read.
        """
        try:
            found = os.stat(path)
        except OSError:
            self._written.add(path)
            return
        self._in_place.setdefault(path, (found.st_size, found.st_mtime_ns))

    def _is_made(self, path: str) -> bool:
        """Whether the program wrote a file before it read any of it, or changed it in place."""
        if path in self._written or path not in self._in_place:
            return path in self._written
        try:
            found = os.stat(path)
        except OSError:
            return True
        return (found.st_size, found.st_mtime_ns) != self._in_place[path]

    def _add(self, path: str, way: str) -> None:
        if path.endswith(_CODE) or path.startswith((self._ours, "/proc/", "/sys/")):
            return
        if of_environment(path) or not self._open:
            return
        if path in self._opened:
            return
        if len(self._opened) < MOST_FILES:
            self._opened[path] = way
            if self.tell:
                self.tell(path, way)
        else:
            self._more += 1

    def _entry(self, path: str, way: str, known: List[Root]) -> Optional[Dict[str, Any]]:
        try:
            found = os.stat(path)
        except OSError:
            return None
        made = self._is_made(path)
        if not self.is_data(path, known):
            return None
        return {
            "name": name_of_file(path, known),
            "path": path,
            "bytes": found.st_size,
            "changed": found.st_mtime,
            "sha256": self._hash(path, found),
            "whole": found.st_size <= WHOLE,
            "way": way,
            "made": made,
            **_kept(path, known),
        }

    def is_data(self, path: str, known: List[Root]) -> bool:
        """Whether an opened file is data: neither code of the project, nor part of the system."""
        if path.endswith(".py") and not _executed(path, known):
            return False
        return not outside(path, known, made=self._is_made(path)) and os.path.isfile(path)

    def _hash(self, path: str, found: os.stat_result) -> Optional[str]:
        key = (path, found.st_size, found.st_mtime_ns)
        if key not in self._hashes:
            wanted = min(found.st_size, WHOLE)
            affordable = self._hashed + wanted <= MOST_BYTES
            self._hashed += wanted if affordable else 0
            self._hashes[key] = digest(path, found.st_size) if affordable else None
        return self._hashes[key]


def _kept(path: str, known: List[Root]) -> Dict[str, Any]:
    """Return `cache`: whether a library stores the file for itself; and `fetched`, if it downloaded it as
    data.
    """
    fetched = fetched_from(path)
    return {"cache": library_cache(path, known), **({"fetched": fetched} if fetched else {})}


def _of_sqlite(name: Any) -> Any:
    """Return the file of a database; SQLite may be given a URI."""
    text = os.fsdecode(name)
    return unquote(text[5:].partition("?")[0]) if text.startswith("file:") else text


def _nobody_s(asking: Optional[FrameType]) -> bool:
    """Whether a folder is listed by the import system or by orch, rather than by the program."""
    while asking is not None and _stands_between(asking):
        asking = asking.f_back
    if asking is None:
        return False
    name = str(asking.f_globals.get("__name__", ""))
    return name.startswith(_IMPORTERS) or _VENDORED in name or _is_ours(asking)


def _stands_between(frame: FrameType) -> bool:
    """Whether a function lists folders for its caller: Python's pathlib and glob, or orch's imposed order."""
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in _BETWEEN or (_is_ours(frame) and name.endswith(".listing"))


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_RUNTIME)


def _executed(path: str, known: List[Root]) -> bool:
    """Whether a code file in the project is not a module, so that the program itself opened it: a
    configuration that is read and executed.
    """
    if not any(not name and path.startswith(folder + os.sep) for name, folder in known):
        return False
    return os.path.realpath(path) not in {file for _, file in module_files()}


def _read_only(number: str) -> str:
    """Return the path of an open descriptor that cannot write; "" for all others."""
    try:
        with open(f"/proc/self/fdinfo/{number}", encoding="ascii") as lines:
            flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
        path = os.readlink(f"/proc/self/fd/{number}")
    except (OSError, StopIteration):
        return ""
    return path if path.startswith("/") and not flags & _WRITES else ""


def digest(path: str, size: int) -> Optional[str]:
    """Return the sha256 of a file, or of its two ends if it is large; None if it cannot be read."""
    hasher = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            if size <= WHOLE:
                for block in iter(lambda: file.read(1 << 20), b""):
                    hasher.update(block)
            else:
                hasher.update(file.read(WHOLE // 2))
                file.seek(-(WHOLE // 2), os.SEEK_END)
                hasher.update(file.read(WHOLE // 2))
    except OSError:
        return None
    return hasher.hexdigest()
