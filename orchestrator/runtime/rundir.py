"""One run's folder on the machine: its layout, its atomic writes, its state.

The folder is the only source of truth about a run. The holder of `lock` works on it: `start` while it
prepares, then the supervisor until the run has ended. The kernel releases the lock when its holder dies, for
any reason, so a run without `exit.json` whose lock is free has lost its supervisor.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH100, PTH101, PTH105, PTH108, PTH110, PTH118, PTH120, PTH208

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
from typing import Any, Dict, List, NamedTuple, Optional

from .processes import alive, boot_id

GRACE = 10.0
"""Seconds between asking a cancelled job to end and ending it."""

ACTIVE = ("queued", "running")
"""The states of a run that has not ended."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+@=-]{0,127}")


class RunError(Exception):
    """A request for a run that cannot be served. `kind`: invalid, conflict, stage, taken, absent, truncated,
    full or failed. `by`: for taken, the run of the user that has to end first.
    """

    def __init__(self, kind: str, message: str, by: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.by = by


class RunDir(NamedTuple):
    """The folder of one run below `base`; every path is absolute."""

    base: str
    run_id: str

    @property
    def root(self) -> str:
        return os.path.join(self.base, "runs", self.run_id)

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    @property
    def spec(self) -> str:
        return self.path("spec.json")

    @property
    def staged(self) -> str:
        return self.path("staged.json")

    @property
    def queued(self) -> str:
        """The run's place in the machine's queue; absent if it was started at once."""
        return self.path("queued.json")

    @property
    def started(self) -> str:
        return self.path("started.json")

    @property
    def exit(self) -> str:
        return self.path("exit.json")

    @property
    def outputs(self) -> str:
        return self.path("outputs.json")

    @property
    def mounts(self) -> str:
        """The list of mounts that the job's processes made; absent if the run shares no data."""
        return self.path("mounts.json")

    @property
    def log(self) -> str:
        return self.path("output.log")

    @property
    def trace(self) -> str:
        return self.path("trace.jsonl")

    @property
    def observe(self) -> str:
        return self.path("observe")

    @property
    def work(self) -> str:
        return self.path("work")

    @property
    def lock(self) -> str:
        return self.path("lock")

    @property
    def cancel(self) -> str:
        return self.path("cancel.json")

    @property
    def collected(self) -> str:
        """The mark that this run's results were downloaded, complete and verified."""
        return self.path("collected")

    @property
    def stored(self) -> str:
        """The mark that all results of this run are in its store."""
        return self.path("stored")


def open_run(base: str, run_id: str) -> RunDir:
    """Return the folder of `run_id`, which need not exist. Raises RunError for an invalid name."""
    if not _RUN_ID.fullmatch(run_id):
        raise RunError(
            "invalid",
            f"{run_id!r} cannot be the name of a run: use up to 128 letters, digits and . _ : + @ = -, "
            "a letter or digit first.",
        )
    return RunDir(os.path.abspath(base), run_id)


def write_json(path: str, value: Any) -> None:
    """Write completely or not at all, and durably; only the owner may read it, because it may contain an
    environment.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise
    _sync_folder(os.path.dirname(path))


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """Return the object in the file, or None if there is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        return None
    return value if isinstance(value, dict) else None


class Reserve:
    """Space for one small JSON file, reserved early, so that a full disk cannot prevent writing it."""

    _SIZE = 4096

    def __init__(self, path: str) -> None:
        self._path = path
        self._reserved = f"{path}.reserve"
        with open(self._reserved, "wb") as file:
            os.chmod(self._reserved, 0o600)
            file.write(b" " * self._SIZE)
            file.flush()
            os.fsync(file.fileno())

    def write(self, value: Any) -> None:
        """Write `value` into the reserved space and give the file its name."""
        text = json.dumps(value, sort_keys=True).encode()
        with open(self._reserved, "r+b") as file:
            file.write(text)
            file.truncate()  # frees room, so it cannot fail on a full disk
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._reserved, self._path)
        _sync_folder(os.path.dirname(self._path))


def try_lock(run: RunDir) -> Optional[int]:
    """Return a descriptor that holds the run's lock until it and its copies are closed; None if held."""
    descriptor = os.open(run.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def held(run: RunDir) -> bool:
    """Whether a process works on this run now."""
    try:
        descriptor = os.open(run.lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def uncollected(run: RunDir) -> bool:
    """Whether this run's results are wanted and exist on this machine only."""
    if os.path.exists(run.collected) or os.path.exists(run.stored):
        return False
    if not os.path.exists(run.started) and not os.path.exists(run.exit):
        return False
    return bool((read_json(run.spec) or {}).get("awaited"))


def unwatched(run: RunDir) -> bool:
    """Whether a job is active whose supervisor was killed: it still uses the machine."""
    started = None if read_json(run.exit) else read_json(run.started)
    return started is not None and alive(started["job"]["pid"], started["job"]["start"])


def all_runs(base: str) -> List[RunDir]:
    """Return the folders of all runs below `base`, sorted by name."""
    found = []
    try:
        names = os.listdir(os.path.join(base, "runs"))
    except FileNotFoundError:
        return []
    for name in sorted(names):
        try:
            found.append(open_run(base, name))
        except RunError:
            continue
    return found


_LARGE = 1 << 36
_HOLLOW = 100
"""A file that is larger than _LARGE bytes and than so many times what is stored of it is a hole."""


def log_bytes(run: RunDir) -> int:
    """Return how many bytes the run has printed; 0 if the job replaced its output file."""
    try:
        about = os.lstat(run.log)
    except FileNotFoundError:
        return 0
    return about.st_size if is_plain(about) else 0


def is_plain(about: os.stat_result) -> bool:
    """Whether it is a regular file with as much data as its size says, not a large hole."""
    hollow = about.st_size > _LARGE and about.st_size > _HOLLOW * about.st_blocks * 512
    return stat.S_ISREG(about.st_mode) and not hollow


def open_plain(path: str) -> int:
    """Open a file for reading that a job can replace. Raises OSError for a link, a pipe or a device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if is_plain(os.fstat(descriptor)):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is not a regular file", path)


def state(run: RunDir) -> Dict[str, Any]:
    """Return the run as model.RunState has it: state, exit, log_bytes, started_at, ended_at."""
    ended = read_json(run.exit)
    if ended is None and not held(run):
        ended = read_json(run.exit)  # it may have ended between the two looks
        if ended is None:
            return _unheld(run)
    started = read_json(run.started) or {}
    exit_ = {key: ended.get(key) for key in _EXIT} if ended else None
    return {
        "state": "ended" if ended else "running" if started or not is_queued(run) else "queued",
        "exit": exit_,
        "log_bytes": log_bytes(run),
        "started_at": started.get("started_at"),
        "ended_at": ended.get("ended_at") if ended else None,
    }


def is_queued(run: RunDir) -> bool:
    """Whether a run that is `held` waits in the queue, or waited there before it began."""
    return os.path.exists(run.queued)


_EXIT = ("code", "signal", "reason", "detail", "noticed")


def _unheld(run: RunDir) -> Dict[str, Any]:
    """Return the state of a run without holder and end: it never began, or it was lost."""
    started = read_json(run.started)
    return {
        "state": "lost" if started else "absent",
        "exit": _lost(started) if started else None,
        "log_bytes": log_bytes(run),
        "started_at": started.get("started_at") if started else None,
        "ended_at": None,
    }


def _lost(started: Dict[str, Any]) -> Dict[str, Any]:
    return {"code": None, "signal": None, "reason": "lost", "detail": _why_lost(started), "noticed": []}


def _why_lost(started: Dict[str, Any]) -> str:
    if started.get("boot_id") != boot_id():
        return "The machine was restarted while the run went on; how far it came is in its output."
    job = started["job"]
    if alive(job["pid"], job["start"]):
        return "The run's supervisor was killed; the job still runs, unwatched. Cancel the run to end it."
    return "The run's supervisor was killed, so how the job ended is not known."


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
