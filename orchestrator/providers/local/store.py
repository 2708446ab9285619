"""The state folder of local machines: one private folder for each machine; files are written atomically."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import LABEL_LASTS, MachineSpec

MAX_HOSTNAME = 63


@dataclass(frozen=True)
class Record:
    """A machine's specification, written before anything is created. Times are ISO 8601, sizes bytes.

    `due`: when the machine ends, in seconds since this computer was started. No machine outlives a restart of
    this computer. `image`: the name of its image, "" for none.
    """

    id: str
    name: str
    tier: str
    cpus: int
    memory: int
    disk: int
    gpus: int
    instance_type: str
    zone: str
    labels: Mapping[str, str]
    created_at: str
    deadline: str
    ssh_public_key: str
    user_data: str
    user: str
    base: str
    due: float | None = None
    image: str = ""

    @property
    def left(self) -> float:
        """Return the seconds until the machine's end, by the monotonic clock of `due`."""
        if self.due is None:
            return datetime.fromisoformat(self.deadline).timestamp() - time.time()
        return self.due - boottime()

    @property
    def age(self) -> float | None:
        """Return the seconds since the machine was created, by the same clock; None for a machine of an
        earlier version of orch.
        """
        if self.due is None:
            return None
        label = str(self.labels.get(LABEL_LASTS, ""))
        noted = datetime.fromisoformat(self.deadline) - datetime.fromisoformat(self.created_at)
        lasts = float(label) if label.isascii() and label.isdigit() else noted.total_seconds()
        return max(0.0, lasts - self.left)


@dataclass(frozen=True)
class Guest:
    """The machine's first process, by its process id on this computer, and the address and port of its
    sshd.
    """

    pid: int
    start: str
    address: str
    port: int
    interface: str = ""
    ready: bool = False


def boottime() -> float:
    """Return the seconds since this computer was started."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def state_home(environ: Mapping[str, str]) -> Path:
    """Return the folder for state that outlives a command: ORCH_STATE_HOME, XDG_STATE_HOME/orch or
    ~/.local/state/orch.
    """
    if environ.get("ORCH_STATE_HOME"):
        return Path(environ["ORCH_STATE_HOME"])
    if environ.get("XDG_STATE_HOME"):
        return Path(environ["XDG_STATE_HOME"]) / "orch"
    return Path(environ.get("HOME") or "~").expanduser() / ".local/state/orch"


def machine_id(spec: MachineSpec) -> str:
    """Return the machine's id, which is always the same for the same spec id and attempt."""
    return "m-" + hashlib.sha256(f"{spec.id}\0{spec.attempt}".encode()).hexdigest()[:12]


def machine_name(spec: MachineSpec) -> str:
    """Return a valid host name: letters, digits and dashes, at most 63."""
    tail = f"-{spec.attempt}"
    slug = re.sub(r"[^a-z0-9]+", "-", spec.id.lower()).strip("-") or "machine"
    return slug[: MAX_HOSTNAME - len(tail)].strip("-") + tail


@dataclass(frozen=True)
class Folder:
    """One machine's folder and the files in it."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def mark(self) -> str:
        """Return the machine's name in control groups and environments. Two state folders may hold the same
        id, so the id alone is not enough.
        """
        return f"{self.id}.{hashlib.sha256(str(self.path).encode()).hexdigest()[:8]}"

    @property
    def cgroup(self) -> str:
        return f"orch/{self.mark}"

    def record(self) -> Record | None:
        found = read_json(self.path / "machine.json")
        return Record(**found) if found else None

    def guest(self) -> Guest | None:
        found = read_json(self.path / "guest.json")
        return Guest(**found) if found else None

    def write_record(self, record: Record) -> None:
        write_json(self.path / "machine.json", asdict(record))

    def write_guest(self, guest: Guest) -> None:
        write_json(self.path / "guest.json", asdict(guest))

    def host_key(self) -> str:
        """Return the public host key, "type base64". Raises ProviderError if other users could have written
        it.
        """
        self.require_private()
        return " ".join((self.path / "host_key.pub").read_text().split()[:2])

    def require_private(self) -> None:
        status = self.path.stat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise ProviderError(
                Fault.AUTH,
                f"Other users can access the folder {self.path}, so the host key in it cannot be trusted.",
                next_command=f"chmod 700 {shlex.quote(str(self.path))}",
            )


class Owner:
    """The lock on a machine's folder, which permits changing the machine. Its creator holds it, then its
    supervisor.

    The kernel releases it when the last holder dies, so a free lock means that no process manages the
    machine.
    """

    def __init__(self, folder: Folder, fd: int) -> None:
        self.folder = folder
        self.fd = fd

    def release(self) -> None:
        os.close(self.fd)


def claim(folder: Folder, *, make: bool = False, patience_s: float = 0.0) -> Owner | None:
    """Lock a machine's folder; None if another process holds it for longer than `patience_s`, or it
    is gone.
    """
    end = time.monotonic() + patience_s
    while True:
        if make:
            folder.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.path.mkdir(exist_ok=True, mode=0o700)
        try:
            fd = os.open(folder.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            if make:
                continue
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_there(folder, fd):
                return Owner(folder, fd)
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(fd)
                return None
            time.sleep(0.01)
        os.close(fd)


def _still_there(folder: Folder, fd: int) -> bool:
    """Return whether the folder still contains the locked file; it may have been removed meanwhile."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), (folder.path / "lock").stat())
    return False


def folders(machines: Path) -> Iterator[Folder]:
    """Yield the folder of every machine, except partly removed ones."""
    if not machines.exists():
        return
    for path in sorted(machines.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            yield Folder(path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file atomically; it is on the disk when this returns."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(part, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of the file; {} if there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except NotADirectoryError:
        return {}
    return found
