"""Complete copies of a run's checkpoints: `<run>/checkpoints/<seq>/files` and, last, `manifest.json`.

The job cannot change a copy any more, and a copy counts only with its manifest.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH103, PTH110, PTH118, PTH120, PTH208

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from ..rundir import RunDir, is_plain, open_plain, read_json, write_json
from ..transfer.outputs import matcher
from ..transfer.stage import walk
from .completeness import Stamp, grows, passes, tells_its_end, unfinished
from .writers import written_now

FOLDER = "checkpoints"
MANIFEST = "manifest.json"
KEPT = 2
"""Number of copies on the machine: the newest, and the one before, which may be being uploaded."""
MOST_FILES = 10_000
_SETTLED_S = 0.5
_CLOCK_REALTIME_COARSE = 5
"""The kernel's clock for the times of files. It advances in steps, so two writes can have the same time."""
HOLDERS = ("client", "upload")
_HELD_S = 7200.0
"""Maximum seconds of a fetch; after that its copy may be removed."""
_ROOM = 256 << 20
"""Bytes that must stay free on the disk after a copy."""
_FICLONE = 0x40049409
_BLOCK = 1 << 20
_SEQ = re.compile(r"\d{6}")


class Found(NamedTuple):
    """The current files of a run's checkpoints, relative to its working folder. `many`: too many to copy."""

    files: Dict[str, Stamp]
    devices: Dict[str, int]
    many: bool = False


class Copy(NamedTuple):
    """One file of a copy: its original, and its SHA-256."""

    stamp: Stamp
    digest: str
    mode: int


class Hindrance(NamedTuple):
    """Why no copy is taken. `kind`: "open" (`path` is open for writing), "incomplete" (`path`), "room" (the
    disk is nearly full), or "many" (more than MOST_FILES files)."""

    kind: str
    path: str


class Keeper:
    """Take copies of one run. There is one such process for each run."""

    def __init__(self, run: RunDir, globs: List[str], killed: Callable[[], bool] = lambda: False) -> None:
        """`killed`: whether the job was killed while working, so that a file may be incomplete."""
        self._run = run
        self._killed = killed
        self._wanted = matcher(globs)
        self._seq = max(numbers(run), default=0)
        self._last: Dict[str, Copy] = {}
        self._waiting_since: Optional[float] = None
        self.hindrance: Optional[Hindrance] = None
        """What the last look found in the way of a copy that is due."""

    def look(self, patience: float) -> Optional[int]:
        """Copy the checkpoints if they are complete and have changed since the last copy; returns the copy's
        number.

        Files that were just written get time to settle, `patience` seconds at most.
        """
        found = self._found()
        self.hindrance = Hindrance("many", "") if found.many else None
        if not found.files or self._is_known(found):
            self._waiting_since = None
            return None
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if not _is_older(found, _SETTLED_S) and now - self._waiting_since < patience:
            return None
        self.hindrance = self._hindrance(found)
        if self.hindrance is not None or not self._passed_a_tick(found):
            return None
        taken = self._copied(found)
        if taken is not None:
            self._waiting_since = None
        return taken

    def _hindrance(self, found: Found) -> "Optional[Hindrance]":
        held = _being_written(found)
        if held is not None:
            return Hindrance("open", held)
        path = unfinished(self._run.work, found.files)
        if path is None and self._killed():  # checked after the open files, because a kill closes them
            path = self._doubtful(found)
        if path is not None:
            return Hindrance("incomplete", path)
        return None if self._is_room(found) else Hindrance("room", "")

    def _doubtful(self, found: Found) -> Optional[str]:
        """Return a file that was not copied while the job lived, and that could be incomplete without showing
        it.
        """
        for name, stamp in found.files.items():
            known = name in self._last and self._last[name].stamp == stamp
            if not known and not grows(name) and not tells_its_end(self._run.work, name):
                return name
        return None

    def _passed_a_tick(self, found: Found) -> bool:
        """Whether a write from now on would get a later time than the files in `found`."""
        tick = _tick()
        if _is_older(found, tick):
            return True
        time.sleep(tick)
        return self._found().files == found.files

    def _is_known(self, found: Found) -> bool:
        kept = {path: stamp for path, stamp in found.files.items() if not grows(path)}
        return kept == {path: copy.stamp for path, copy in self._last.items() if not grows(path)}

    def _found(self) -> Found:
        files: Dict[str, Stamp] = {}
        devices: Dict[str, int] = {}
        for path, is_folder in walk(self._run.work, skip=[]):
            name = os.path.relpath(path, self._run.work)
            if is_folder or not self._wanted(name) or passes(name):
                continue
            about = _regular(path)
            if about is not None:
                files[name], devices[name] = _stamp(about), about.st_dev
            if len(files) > MOST_FILES:
                return Found({}, {}, many=True)
        return Found(files, devices)

    # ------------------------------------------------------------ copying

    def _copied(self, found: Found) -> Optional[int]:
        """Copy all files; returns the number of the copy, None if a file changed meanwhile."""
        seq = self._seq + 1
        folder = os.path.join(self._run.path(FOLDER), f"{seq:06d}")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            copies = {name: self._copy(name, stamp, folder) for name, stamp in found.files.items()}
            if not self._still(found):
                raise _Changed
            write_json(os.path.join(folder, MANIFEST), _manifest(seq, copies))
        except (_Changed, OSError):
            shutil.rmtree(folder, ignore_errors=True)
            return None
        self._seq, self._last = seq, copies
        prune(self._run, KEPT)
        return seq

    def _still(self, found: Found) -> bool:
        now = self._found().files
        return {name: stamp for name, stamp in now.items() if not grows(name)} == {
            name: stamp for name, stamp in found.files.items() if not grows(name)
        } and _being_written(found) is None

    def _copy(self, name: str, stamp: Stamp, folder: str) -> Copy:
        target = os.path.join(folder, "files", name)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        before = self._last.get(name)
        if before is not None and before.stamp == stamp and self._linked(name, target):
            return before
        source = open_plain(os.path.join(self._run.work, name))
        with os.fdopen(source, "rb") as reading, open(target, "xb") as writing:
            mode = stat.S_IMODE(os.fstat(source).st_mode)
            digest = _write(reading, writing, stamp[0])
        if digest is None:
            raise _Changed
        return Copy(stamp, digest, mode)

    def _linked(self, name: str, target: str) -> bool:
        """Link the file from the previous copy, which nobody writes to. Returns False if that fails."""
        earlier = os.path.join(self._run.path(FOLDER), f"{self._seq:06d}", "files", name)
        try:
            os.link(earlier, target)
        except OSError:
            return False
        return True

    def _is_room(self, found: Found) -> bool:
        new = sum(
            stamp[0]
            for name, stamp in found.files.items()
            if name not in self._last or self._last[name].stamp != stamp
        )
        if new + _ROOM <= _free(self._run):
            return True
        prune(self._run, 1)
        return new + _ROOM <= _free(self._run)


class _Changed(Exception):
    """The job wrote to a file while it was copied."""


def _write(reading: Any, writing: Any, size: int) -> Optional[str]:
    """Copy `size` bytes, by sharing blocks if the file system can. Returns their SHA-256, None for fewer
    bytes.
    """
    try:
        fcntl.ioctl(writing.fileno(), _FICLONE, reading.fileno())
        shared = True
    except OSError:
        shared = False
    digest, left = hashlib.sha256(), size
    while left > 0:
        block = reading.read(min(_BLOCK, left))
        if not block:
            return None
        digest.update(block)
        if not shared:
            writing.write(block)
        left -= len(block)
    if shared:
        writing.truncate(size)
    return digest.hexdigest()


def _manifest(seq: int, copies: Dict[str, Copy]) -> Dict[str, Any]:
    files = [
        {"path": name, "size": copy.stamp[0], "digest": copy.digest, "mode": copy.mode & 0o777}
        for name, copy in sorted(copies.items())
    ]
    return {"seq": seq, "taken_at": time.time(), "files": files}


def _is_older(found: Found, seconds: float) -> bool:
    """Whether the last change of the files is at least that long ago."""
    newest = max(stamp[2] for stamp in found.files.values())
    return abs(time.time() - newest / 1e9) >= seconds


def _being_written(found: Found) -> Optional[str]:
    """Return a file that some process has open for writing."""
    names = {(found.devices[name], stamp[3]): name for name, stamp in found.files.items() if not grows(name)}
    held = written_now(names)
    return names[held] if held is not None else None


def _tick() -> float:
    try:
        return 2 * time.clock_getres(_CLOCK_REALTIME_COARSE)
    except (OSError, AttributeError):
        return 0.02


def _regular(path: str) -> Optional[os.stat_result]:
    try:
        about = os.lstat(path)
    except OSError:
        return None
    return about if is_plain(about) else None


def _stamp(about: os.stat_result) -> Stamp:
    return about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino


def _free(run: RunDir) -> int:
    disk = os.statvfs(run.root)
    return disk.f_bavail * disk.f_frsize


# ---------------------------------------------------------------- what is kept


def numbers(run: RunDir) -> List[int]:
    """Return the numbers of the complete copies, ascending."""
    try:
        names = os.listdir(run.path(FOLDER))
    except OSError:
        return []
    whole = [name for name in names if _SEQ.fullmatch(name) and os.path.exists(_manifest_of(run, name))]
    return sorted(int(name) for name in whole)


def manifest(run: RunDir, seq: int) -> Optional[Dict[str, Any]]:
    """Return the content of the copy; None if there is none."""
    return read_json(_manifest_of(run, f"{seq:06d}"))


def hold(run: RunDir, seq: int, holder: str) -> None:
    """Keep this copy, which one of the HOLDERS is sending, even if it is not among the newest; a holder holds
    one copy at a time.
    """
    write_json(_held(run, holder), {"seq": seq, "at": time.time()})


def _is_held(run: RunDir, seq: int) -> bool:
    holds = (read_json(_held(run, holder)) for holder in HOLDERS)
    return any(each and each["seq"] == seq and abs(time.time() - each["at"]) < _HELD_S for each in holds)


def _held(run: RunDir, holder: str) -> str:
    return run.path(f"checkpoints.held.{holder}")


def prune(run: RunDir, kept: int) -> None:
    """Remove all copies but the newest `kept` and, unless only one may stay, the one that is held."""
    for seq in numbers(run)[:-kept]:
        if kept > 1 and _is_held(run, seq):
            continue
        name = f"{seq:06d}"
        os.unlink(_manifest_of(run, name))  # noqa: PTH108
        shutil.rmtree(os.path.join(run.path(FOLDER), name), ignore_errors=True)


def _manifest_of(run: RunDir, name: str) -> str:
    return os.path.join(run.path(FOLDER), name, MANIFEST)
