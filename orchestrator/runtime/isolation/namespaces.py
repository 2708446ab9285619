"""Namespaces: a root of bind mounts, no network, no view of other processes, no rights of the real user."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, List

from . import libc

if TYPE_CHECKING:
    from . import View

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    *(0x20000, 0x4000000, 0x8000000),
    *(0x10000000, 0x20000000, 0x40000000),
)
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_KEPT = {1: 1, 2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}
"""Flag of statvfs -> flag of mount: read-only, nosuid, nodev, noexec, noatime, nodiratime, relatime."""
_MOUNT_SETATTR, _RECURSIVE, _DETACH = 442, 0x8000, 2
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


@dataclass
class Held:
    """Which namespaces this process is in; `files`: its root contains only the view."""

    user: bool = False
    network: bool = False
    processes: bool = False
    files: bool = False


def enter(view: View) -> Held:
    """Enter as many namespaces as the kernel allows. With one for processes, continue in a child process."""
    held, uid, gid = Held(), os.getuid(), os.getgid()
    more = _NEWNS | _NEWNET | _NEWIPC | _NEWUTS
    for flags in (_NEWUSER | _NEWPID | more, _NEWUSER | more, _NEWPID | more, more):
        if _unshared(flags):
            held.user, held.processes = bool(flags & _NEWUSER), bool(flags & _NEWPID)
            held.network = True
            break
    if not held.network:
        return held
    if held.user:
        _map(uid, gid)
    if held.processes:
        _go_on_in_a_child()
    try:
        _change_root(view)
        held.files = True
    except OSError:
        held.files = False  # Landlock, if available, enforces the same view
    return held


def _unshared(flags: int) -> bool:
    try:
        libc.checked(libc.libc().unshare(ctypes.c_int(flags)), "unshare")
    except OSError:
        return False
    return True


def _map(uid: int, gid: int) -> None:
    """Keep user and group id inside the namespace. If that is refused, the process runs as nobody, which
    suffices."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        try:
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
        except OSError:
            continue


def _go_on_in_a_child() -> None:
    """Fork, because a process namespace applies to children only. The parent exits with the child's
    status."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        libc.die_with_parent()
        return
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        os._exit(128 + os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


# ---------------------------------------------------------------- the root


def _change_root(view: View) -> None:
    """Change to a new root in memory: the view bound read-only, four devices, and the scratch folder, also in
    memory."""
    _mount(None, "/", None, _REC | _PRIVATE)
    base = view.scratch
    _mount("tmpfs", base, "tmpfs", _NOSUID | _NODEV, "size=16m,mode=755")
    for path in _outermost([*view.read, *DEVICES]):
        _bind(path, base + path)
    inside = base + view.scratch
    Path(inside).mkdir(parents=True, exist_ok=True)
    _mount("tmpfs", inside, "tmpfs", _NOSUID | _NODEV, f"size={view.file_size},mode=700")
    old = f"{base}/.old"
    Path(old).mkdir()
    os.chdir(base)
    libc.syscall(libc.numbered("pivot_root"), os.fsencode(base), os.fsencode(old))
    os.chdir("/")
    libc.checked(libc.libc().umount2(b"/.old", ctypes.c_int(_DETACH)), "umount2")
    Path("/.old").rmdir()
    _mount(None, "/", None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    os.chdir(view.scratch)


def _outermost(paths: List[str]) -> List[str]:
    """Return the existing paths, sorted, without those that lie inside another one."""
    kept: List[str] = []
    for path in sorted({os.path.normpath(path) for path in paths}):
        inside = any(path.startswith(f"{folder}/") and not Path(folder).is_symlink() for folder in kept)
        if not inside and os.path.lexists(path):
            kept.append(path)
    return kept


def _bind(source: str, target: str) -> None:
    """Bind `source` at `target`, read-only; a link in the root folder, such as /lib, is copied as a link."""
    origin, place = Path(source), Path(target)
    if origin.is_symlink() and origin.parent == Path("/"):
        place.symlink_to(origin.readlink())
        return
    try:
        mode = origin.stat().st_mode
    except OSError:
        return
    if stat.S_ISDIR(mode):
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    _mount(source, target, None, _BIND | _REC)
    if not stat.S_ISCHR(mode):
        _make_read_only(target)


def _make_read_only(target: str) -> None:
    """Make a mount read-only, including mounts below it if the kernel can do that in one call (5.12)."""
    attributes = (ctypes.c_uint64 * 4)(_RDONLY | _NOSUID | _NODEV, 0, 0, 0)
    try:
        libc.syscall(
            _MOUNT_SETATTR,
            *(ctypes.c_int(-100), os.fsencode(target), ctypes.c_uint(_RECURSIVE)),
            *(ctypes.byref(attributes), ctypes.c_size_t(32)),
        )
    except OSError:
        flags = os.statvfs(target).f_flag
        kept = sum(flag for bit, flag in _KEPT.items() if flags & bit)
        _mount(None, target, None, _REMOUNT | _BIND | _RDONLY | kept)


def _mount(source: object, target: str, kind: object, flags: int, options: str = "") -> None:
    done = libc.libc().mount(
        *(os.fsencode(str(source)) if source else None, os.fsencode(target)),
        *(os.fsencode(str(kind)) if kind else None, ctypes.c_ulong(flags), options.encode() or None),
    )
    libc.checked(done, f"mount at {target}")


def drop_capabilities() -> None:
    """Drop all capabilities, also root's and those in the own namespace, so that nothing can be mounted any
    more."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    none = (ctypes.c_uint32 * 6)()
    try:
        libc.syscall(libc.numbered("capset"), ctypes.byref(header), ctypes.byref(none))
    except OSError:
        return  # seccomp refuses the calls that need capabilities
