"""Which kind of machine this computer allows, its limits, and what would make it better.

netns    as root: own files, processes, name, network address and limits
userns   without root: own files, processes and name; this computer's network, no limits
process  a private sshd as the user: nothing is isolated
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.providers.local.cgroup import Hierarchies, hierarchies
from orchestrator.providers.local.store import state_home
from orchestrator.providers.local.tools import find, search_path

TIERS = ("netns", "userns", "process")
NAMESPACES: dict[str, tuple[str, ...]] = {
    "netns": ("--net", "--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup"),
    "userns": (
        *("--user", "--map-root-user", "--map-auto"),
        *("--mount", "--pid", "--fork", "--uts", "--ipc"),
    ),
}
"""Options of unshare(1) by tier."""

_NEEDS: dict[str, tuple[str, ...]] = {
    "netns": ("sshd", "ssh-keygen", "unshare", "nsenter", "setpriv", "mount", "umount", "pivot_root", "ip"),
    "userns": ("sshd", "ssh-keygen", "unshare", "nsenter", "mount", "umount", "pivot_root", "newuidmap"),
    "process": ("sshd", "ssh-keygen"),
}
_SSH_AND_IP = {"sshd": "openssh-server", "ip": "iproute2"}
_PACKAGES: dict[str, Mapping[str, str]] = {
    "apt-get": {**_SSH_AND_IP, "newuidmap": "uidmap", "ssh-keygen": "openssh-client"},
    "dnf": {"sshd": "openssh-server", "ip": "iproute", "newuidmap": "shadow-utils", "ssh-keygen": "openssh"},
    "apk": {
        **_SSH_AND_IP,
        "newuidmap": "shadow-uidmap",
        "ssh-keygen": "openssh-keygen",
        "setpriv": "setpriv",
    },
    "pacman": {"sshd": "openssh", "ip": "iproute2", "newuidmap": "shadow", "ssh-keygen": "openssh"},
}
"""The package that has each program, by package manager; the other programs belong to util-linux."""
_INSTALL = {"apt-get": "install -y", "dnf": "install -y", "apk": "add", "pacman": "-S --noconfirm"}


@dataclass(frozen=True)
class Survey:
    """The kind of machine that this computer allows. `tier` is netns, userns, process, or none without an
    sshd.

    `limits`: clauses on how a machine of this tier ("it") differs from one of a cloud. `missing`: programs
    that a better tier (or any) needs. `fix`: a command, or "".
    """

    tier: str
    limits: tuple[str, ...]
    missing: tuple[str, ...]
    fix: str


def survey(environ: Mapping[str, str] | None = None, state: Path | None = None) -> Survey:
    """Determine what this computer allows where `state` is; takes about 50 ms, once.

    ORCH_LOCAL_TIER forces a tier, for tests.
    """
    environ = os.environ if environ is None else environ
    wanted = environ.get("ORCH_LOCAL_TIER", "")
    tiers = (wanted,) if wanted else TIERS
    tier = next((name for name in tiers if name in TIERS and _works(name)), "none")
    better = TIERS[: TIERS.index(tier) + 1] if tier in TIERS else tiers
    missing = tuple(dict.fromkeys(name for other in better if other in TIERS for name in _absent(other)))
    return Survey(
        tier=tier, limits=_limits(tier, state or state_home(environ)), missing=missing, fix=_fix(missing)
    )


def current_hierarchies() -> Hierarchies:
    try:
        return hierarchies(Path("/proc/mounts").read_text())
    except OSError:
        return Hierarchies({})


def disk_kind(folder: Path) -> str:
    """Return where a machine's files can be: on a loop device of its own size, in a folder, or in memory."""
    if os.geteuid() == 0 and _loops_work() and find("mkfs.ext4"):
        return "loop"
    return "tmpfs" if _file_system(folder) == "overlay" else "folder"


def _absent(tier: str) -> tuple[str, ...]:
    if (tier == "netns") != (os.geteuid() == 0) and tier != "process":
        return ()  # no program would help: only root can have the better tier
    if tier != "process" and not sys.platform.startswith("linux"):
        return ()
    return tuple(name for name in _NEEDS[tier] if find(name) is None)


def _works(tier: str) -> bool:
    if any(find(name) is None for name in _NEEDS[tier]):
        return False
    if tier == "process":
        return True
    if not sys.platform.startswith("linux") or (tier == "netns" and os.geteuid() != 0):
        return False
    return _unshares(tier)


_TRIAL = """
set -e
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=/etc,upperdir=upper,workdir=work$2" root
mount -t proc proc root
[ "$3" != netns ] || ip link add trial0 type veth peer name trial1
"""


@functools.cache
def _unshares(tier: str) -> bool:
    """Try to create the namespaces, an overlay and a link for a moment."""
    option = "" if tier == "netns" else ",userxattr"
    with tempfile.TemporaryDirectory() as folder:
        trial = subprocess.run(
            [find("unshare") or "unshare", *NAMESPACES[tier], "sh", "-c", _TRIAL, "sh", folder, option, tier],
            env={**os.environ, "PATH": search_path()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
    return trial.returncode == 0


@functools.cache
def _loops_work() -> bool:
    return (
        subprocess.run(
            [find("losetup") or "losetup", "--find"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds `folder`."""
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text().splitlines():
        where, found = line.split()[1:3]
        if folder.resolve().is_relative_to(where) and len(where) >= len(best):
            best, kind = where, found
    return kind


def _limits(tier: str, state: Path) -> tuple[str, ...]:
    if tier == "netns":
        return _limits_as_root(state)
    if tier == "userns":
        return (
            "it has no address of its own: it uses this computer's network, and a port of 127.0.0.1",
            "its memory, processes and disk are not limited",
            "its root user cannot change files that belong to this computer's root",
            "it cannot be frozen at one moment or cut off from the network, and has no disk of its own",
        )
    if tier == "process":
        return (
            "it is not isolated: the job sees your files and may change them",
            "it has no root user, name, address or process numbers of its own",
            "its memory, processes and disk are not limited",
            "it is powered off only by the programs on its own PATH",
            "if its supervisor crashes, processes that hide their environment are not found",
        )
    return ("this computer cannot run local machines",)


def _limits_as_root(state: Path) -> tuple[str, ...]:
    absent = current_hierarchies().missing()
    uncontrolled = {
        "memory": "its memory is not limited",
        "cpu": "its CPUs are limited by affinity only, without a quota",
        "pids": "the number of its processes is not limited",
    }
    disk = {
        "folder": "its disk is not limited, because this computer has no loop device",
        "tmpfs": "its disk is in memory, because this computer has no loop device",
        "loop": "",
    }[disk_kind(state)]
    always = (
        "it shares this computer's kernel, /usr, /etc and /opt, so it is not a security boundary",
        "in it, free and /proc/meminfo show this computer's memory",
        "it has no internet",
    )
    return (*(text for name, text in uncontrolled.items() if name in absent), *filter(None, [disk]), *always)


def _fix(missing: Sequence[str]) -> str:
    manager = next((name for name in _PACKAGES if find(name)), None)
    if not missing or manager is None:
        return ""
    names = sorted({_package(manager, program) for program in missing})
    prefix = "" if os.geteuid() == 0 else "sudo "
    return f"{prefix}{manager} {_INSTALL[manager]} {' '.join(names)}"


def _package(manager: str, program: str) -> str:
    return "e2fsprogs" if program == "mkfs.ext4" else _PACKAGES[manager].get(program, "util-linux")
