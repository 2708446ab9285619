"""Ending a machine and removing all that it was: processes, link, control group, files.

Its mounts, loop device and network live in namespaces and end with its processes by themselves.
Everything here may be called again after having been killed at any point.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from orchestrator.providers.local import group, network, processes
from orchestrator.providers.local.cgroup import Cgroup
from orchestrator.providers.local.store import Folder
from orchestrator.providers.local.survey import NAMESPACES, current_hierarchies
from orchestrator.providers.local.tools import find

PATIENCE_S = 10.0


def cgroup_of(folder: Folder) -> Cgroup:
    return Cgroup(folder.cgroup, current_hierarchies())


def kill_guest(folder: Folder) -> bool:
    """Kill every process of the machine at once, frozen or not; False where one would not die."""
    end = time.monotonic() + PATIENCE_S
    limits = cgroup_of(folder)
    guest = folder.guest()
    first = processes.Process(guest.pid, guest.start) if guest else None
    server = f"sshd -f {folder.path / 'sshd_config'}"
    while True:
        if first is not None:
            first.signal(signal.SIGKILL)
        others = limits.pids() | processes.marked(folder.mark) | processes.titled(server)
        for pid in others:
            processes.send(pid, signal.SIGKILL)
        limits.freeze(False)  # the frozen die only when thawed, but then before they run
        if not others and (first is None or not first.alive()):
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.005)


def destroy(folder: Folder) -> bool:
    """Remove what is left of a machine whose folder the caller owns; False where something resisted."""
    if not kill_guest(folder):
        return False
    guest = folder.guest()
    if guest is not None:
        network.unplug(guest.interface, folder.mark)
        group.unplug(guest.interface, folder.mark)
    if not cgroup_of(folder).remove():
        return False
    _await_loop_device(folder.path / "disk.img")
    doomed = folder.path.with_name(f".gone-{folder.id}-{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):
        folder.path.rename(doomed)
        erase(doomed)
    return True


def sweep(machines: Path) -> None:
    """Finish removals of files that were interrupted, and remove the networks of groups without machines."""
    group.sweep(machines)
    for path in machines.glob(".gone-*"):
        erase(path)


def erase(path: Path) -> None:
    """Delete a folder, also where some of it belongs to users that exist only in a user namespace.

    What a dead process of it has mounted below is taken away first, or it could not be deleted.
    """
    _unmount_below(path)
    shutil.rmtree(path, ignore_errors=True)
    unshare = find("unshare")
    if path.exists() and os.geteuid() != 0 and unshare:
        inside = [unshare, *NAMESPACES["userns"][:3], "rm", "-rf", "--", str(path)]
        subprocess.run(inside, capture_output=True, stdin=subprocess.DEVNULL, check=False)


def _unmount_below(folder: Path) -> None:
    from orchestrator.runtime.fetch.mounting import mounted, unmount

    below = (place for place in mounted() if place.startswith(f"{folder.resolve()}/"))
    for place in sorted(below, reverse=True):
        unmount(place)


def _await_loop_device(image: Path) -> None:
    """The kernel lets go of it when the last mount is gone, a moment after the last process."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if not any(_backing_file(device) == str(image) for device in Path("/sys/block").glob("loop*")):
            return
        time.sleep(0.005)


def _backing_file(device: Path) -> str:
    try:
        return (device / "loop/backing_file").read_text().strip()
    except OSError:
        return ""
