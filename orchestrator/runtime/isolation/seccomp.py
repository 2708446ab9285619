"""A seccomp filter: no new processes, no programs, no sockets, no look into other processes."""

from __future__ import annotations

import ctypes
import platform
from typing import List, Tuple

from . import libc

_Instruction = Tuple[int, int, int, int]
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_CLONE_THREAD = 0x10000
_X32 = 0x40000000

_EVERYWHERE = (
    *(424, 434, 438),  # pidfd_send_signal, pidfd_open, pidfd_getfd
    *(425, 426, 427),  # io_uring_setup, io_uring_enter, io_uring_register
    *(428, 429, 430, 431, 432, 433, 442),  # open_tree, move_mount, fsopen … fspick, mount_setattr
)
_X86_64 = (
    *(57, 58, 59, 322),  # fork, vfork, execve, execveat
    *(62, 129, 200, 234, 297),  # kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo
    *(41, 42, 43, 49, 50, 288),  # socket, connect, accept, bind, listen, accept4
    *(101, 310, 311),  # ptrace, process_vm_readv, process_vm_writev
    *(155, 161, 165, 166, 272, 308),  # pivot_root, chroot, mount, umount2, unshare, setns
    *(248, 249, 250, 321, 298, 323),  # add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd
    *(303, 304),  # name_to_handle_at, open_by_handle_at
    *(164, 169, 172, 173, 175, 176, 227, 246, 313, 320),  # clocks, reboot, ports, kernel modules, kexec
)
_AARCH64 = (
    *(221, 281),  # execve, execveat
    *(129, 138, 130, 131, 240),  # kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo
    *(198, 203, 202, 200, 201, 242),  # socket, connect, accept, bind, listen, accept4
    *(117, 270, 271),  # ptrace, process_vm_readv, process_vm_writev
    *(41, 51, 40, 39, 97, 268),  # pivot_root, chroot, mount, umount2, unshare, setns
    *(217, 218, 219, 280, 241, 282),  # add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd
    *(264, 265),  # name_to_handle_at, open_by_handle_at
    *(104, 105, 106, 112, 142, 170, 273, 294),  # kexec, kernel modules, clocks, reboot
)
_MACHINES = {
    "x86_64": (0xC000003E, 56, (*_X86_64, *_EVERYWHERE)),
    "aarch64": (0xC00000B7, 220, (*_AARCH64, *_EVERYWHERE)),
}
"""Machine -> (its number in the filter's data, clone's number, the system calls that are refused)."""
_CLONE3 = 435


class _Filter(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Filter)))


def restrict() -> bool:
    """Restrict this thread and those that it starts; False where that is not possible."""
    known = _MACHINES.get(platform.machine())
    if known is None:
        return False
    instructions = _instructions(*known)
    array = (_Filter * len(instructions))(*(_Filter(*each) for each in instructions))
    program = _Program(len(instructions), array)
    try:
        libc.no_new_privileges()
        done = libc.libc().prctl(22, ctypes.c_ulong(2), ctypes.byref(program), ctypes.c_ulong(0))
        libc.checked(done, "seccomp")
    except OSError:
        return False
    return True


def _instructions(machine: int, clone: int, refused: Tuple[int, ...]) -> List[_Instruction]:
    """Threads may be made, by clone: clone3 is said not to exist, for its flags cannot be looked at."""
    program: List[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, machine),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == _MACHINES["x86_64"][0]:
        program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _REFUSE | _ENOSYS)]
    program += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _REFUSE | _ENOSYS)]
    for number in refused:
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | _EPERM)]
    return [
        *program,
        (_EQUAL, 0, 3, clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _REFUSE | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
