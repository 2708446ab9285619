"""Start the first process of a machine, and exchange messages with it until its files are complete."""

from __future__ import annotations

import math
import os
import select
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from orchestrator.providers.local import network, processes, seed
from orchestrator.providers.local.cgroup import Limits
from orchestrator.providers.local.images import image_layer
from orchestrator.providers.local.removal import cgroup_of
from orchestrator.providers.local.store import Folder, Guest, Record
from orchestrator.providers.local.survey import NAMESPACES, disk_kind
from orchestrator.providers.local.tools import search_path, tool

SSH_PORT = 22
MAX_PROCESSES = 8192
BUILD_PATIENCE_S = 60.0
_ENTER = 'for entrance in $MACHINE_ENTRANCES; do echo 0 >"$entrance"; done; exec "$@"'

Child = subprocess.Popen[bytes]


class LaunchError(Exception):
    """The machine did not start; the text is the reason from its console."""


def prepare(folder: Folder, record: Record) -> Guest:
    """Write everything that the machine's first process needs, and choose where its sshd listens."""
    if record.tier == "process":
        guest = Guest(pid=0, start="", address="127.0.0.1", port=network.free_port())
        seed.seed_process(folder, record, guest.port)
        return guest
    if record.tier == "userns":
        guest = Guest(pid=0, start="", address="127.0.0.1", port=network.free_port())
        seed.seed_isolated(folder, record, guest.address, guest.port)
    else:
        guest = Guest(pid=0, start="", address="", port=SSH_PORT)
        seed.seed_isolated(folder, record, "0.0.0.0", SSH_PORT)
        cgroup_of(folder).create(Limits(record.cpus, record.memory, MAX_PROCESSES))
    _make_disk(folder, record)
    return guest


def launch(folder: Folder, record: Record, guest: Guest) -> Child:
    """Start the machine; its first process is recorded before it does anything.

    If this process dies in between, the machine's process reads the end of its input and ends too.
    """
    console = folder.path / "console.log"
    with console.open("ab") as errors:
        child = subprocess.Popen(
            _command(folder, record),
            env=_environment(folder, record),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            cwd="/",
        )
    first = processes.process(int(_expect(child, "pid", console)))
    guest = replace(guest, pid=first.pid, start=first.start)
    if record.tier == "netns":
        link = network.plug(first.pid, folder.mark)
        guest = replace(guest, address=link.there, interface=link.interface)
    if record.tier == "process":
        (folder.path / "run/init.pid").write_text(str(first.pid))
    folder.write_guest(guest)
    _say(child, f"go {guest.address}\n")
    _expect(child, "built", console)
    folder.write_guest(replace(guest, ready=True))
    return child


def _command(folder: Folder, record: Record) -> list[str]:
    if record.tier == "process":
        here = folder.path
        arguments = [tool("sshd"), here / "sshd_config", str(_lasts(record)), here / "user-data"]
        arguments += [here / "log/user-data.log", here / "run/sshd.pid", folder.mark]
        return [tool("sh"), str(seed.GUEST / "init.sh"), *map(str, arguments)]
    isolated = [tool("unshare"), *NAMESPACES[record.tier], "--kill-child=KILL", "--propagation", "private"]
    return [tool("sh"), "-c", _ENTER, "sh", *isolated, tool("sh"), str(seed.GUEST / "boot.sh")]


def _environment(folder: Folder, record: Record) -> dict[str, str]:
    base = {"PATH": search_path()}
    if record.tier == "process":
        return {**base, "HOME": str(folder.path / "home")}
    group = cgroup_of(folder)
    limited = record.tier == "netns"
    return {
        **base,
        "MACHINE_DIR": str(folder.path),
        "MACHINE_STATE": str(folder.path.parent),
        "MACHINE_NAME": record.name,
        "MACHINE_TIER": record.tier,
        "MACHINE_DISK": disk_kind(folder.path),
        "MACHINE_DISK_BYTES": str(record.disk),
        "MACHINE_IMAGE": str(image_layer(folder, record.image)) if record.image else "",
        "MACHINE_BASE": record.base,
        "MACHINE_LASTS": str(_lasts(record)),
        "MACHINE_SSHD": tool("sshd"),
        "MACHINE_ENTRANCES": " ".join(group.entrances()) if limited else "",
        "MACHINE_CGROUPS": " ".join(group.visible()) if limited else "",
        "MACHINE_DEVICES": " ".join(_gpu_devices(record.gpus)),
    }


def _lasts(record: Record) -> int:
    """Return the seconds until the deadline, rounded up; the machine counts them."""
    return math.ceil(record.left)


def _gpu_devices(count: int) -> list[str]:
    if not count:
        return []
    found = [path.name for path in Path("/dev").glob("nvidia*") if path.is_char_device()]
    return [name for name in found if not name.removeprefix("nvidia").isdigit() or int(name[6:]) < count]


def _make_disk(folder: Folder, record: Record) -> None:
    (folder.path / "mnt").mkdir(exist_ok=True)
    kind = disk_kind(folder.path)
    if kind == "folder":
        (folder.path / "disk").mkdir(exist_ok=True)
    if kind != "loop":
        return
    image = folder.path / "disk.img"
    with image.open("wb") as file:
        file.truncate(record.disk)
    features = ["-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard", "-m", "0"]
    subprocess.run(
        [tool("mkfs.ext4"), "-q", "-F", *features, image], check=True, capture_output=True, text=True
    )


def _expect(child: Child, word: str, console: Path) -> str:
    """Return the rest of the next line of the machine's report. Raises LaunchError unless it begins with
    `word`.
    """
    line = _line(child)
    if not line.startswith(word):
        child.kill()
        raise LaunchError(console.read_text(errors="replace").strip()[-2000:] or f"it did not report {word}")
    return line.removeprefix(word).strip()


def _line(child: Child) -> str:
    assert child.stdout is not None
    found = b""
    end = time.monotonic() + BUILD_PATIENCE_S
    while not found.endswith(b"\n"):
        readable, _, _ = select.select([child.stdout], [], [], max(0.0, end - time.monotonic()))
        byte = os.read(child.stdout.fileno(), 1) if readable else b""
        if not byte:
            break
        found += byte
    return found.decode(errors="replace")


def _say(child: Child, text: str) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(text.encode())
        child.stdin.flush()
    except BrokenPipeError:  # the machine's process has died; the reason is read next
        pass
