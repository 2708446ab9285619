"""End a machine and remove its processes, link, control group and files.

Its mounts, loop device and network are in namespaces, and end with its processes. Everything here may be
called again after an interruption at any point.
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
    """Kill all processes of the machine at once, frozen or not; False if one does not die."""
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
        limits.freeze(False)  # frozen processes receive the signal only when thawed
        if not others and (first is None or not first.alive()):
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.005)


def destroy(folder: Folder) -> bool:
    """Remove what is left of a machine whose folder the caller has locked; False if something could not be
    removed.
    """
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
    """Complete interrupted removals of files, and remove the networks of groups without machines."""
    group.sweep(machines)
    for path in machines.glob(".gone-*"):
        erase(path)


def erase(path: Path) -> None:
    """Delete a folder, even if files in it belong to users of a user namespace.

    Mounts in it that a dead process left are removed first.
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
    """Wait for the loop device: the kernel releases it a moment after the last process, with the last
    mount.
    """
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
