"""A seccomp filter: no new processes, programs or sockets, and no changes to other processes or to file
metadata.

Landlock confines which files are opened. It does not cover changes of a file's mode, owner, times and
attributes, nor, before kernel 6.2, of its length: those are refused here.
"""

from __future__ import annotations

import ctypes
import platform
from typing import List, NamedTuple, Tuple

from . import libc

_Instruction = Tuple[int, int, int, int]
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_CLONE_THREAD = 0x10000
_SHARED, _ANONYMOUS = 0x1, 0x20
_OWNERS = (8, 10, 15)
"""fcntl: F_SETOWN, F_SETSIG, F_SETOWN_EX, which make the kernel send signals to another process."""
_OWNERS_OR_INPUT = (0x8901, 0x8902, 0x5412, 0x541C)
"""ioctl: FIOSETOWN, SIOCSPGRP; TIOCSTI, TIOCLINUX, which type into a terminal."""
_PARENT_DEATH_SIGNAL = (1,)
_X32 = 0x40000000


class _Machine(NamedTuple):
    """`code`: the architecture's number in the filter's data. The other fields are numbers of system
    calls."""

    code: int
    clone: int
    mmap: int
    prctl: int
    fcntl: int
    ioctl: int
    memfd_create: int
    of_itself: Tuple[int, ...]
    """Allowed only for the calling process, whose id is given as 0: they set limits, priority or CPUs."""
    refused: Tuple[int, ...]


_EVERYWHERE = (
    *(424, 434, 438),  # pidfd_send_signal, pidfd_open, pidfd_getfd
    *(425, 426, 427),  # io_uring_setup, io_uring_enter, io_uring_register
    *(428, 429, 430, 431, 432, 433, 442),  # open_tree, move_mount, fsopen … fspick, mount_setattr
    *(440, 448),  # process_madvise, process_mrelease
    *(452, 463, 466, 469),  # fchmodat2, setxattrat, removexattrat, file_setattr
)
_X86_64 = (
    *(57, 58, 59, 322),  # fork, vfork, execve, execveat
    *(62, 129, 200, 234, 297),  # kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo
    *(41, 42, 43, 49, 50, 288),  # socket, connect, accept, bind, listen, accept4
    *(101, 310, 311, 312),  # ptrace, process_vm_readv, process_vm_writev, kcmp
    *(109, 112, 141, 251, 256, 279),  # setpgid, setsid, setpriority, ioprio_set, migrate_pages, move_pages
    *(90, 91, 268, 92, 93, 94, 260),  # chmod, fchmod, fchmodat, chown, fchown, lchown, fchownat
    *(132, 235, 261, 280, 76),  # utime, utimes, futimesat, utimensat, truncate
    *(188, 189, 190, 197, 198, 199),  # setxattr, lsetxattr, fsetxattr, removexattr, l…, f…
    *(253, 294, 300),  # inotify_init, inotify_init1, fanotify_init
    *(29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220),  # shared memory, semaphores, messages of System V
    *(240, 241),  # mq_open, mq_unlink
    *(155, 161, 165, 166, 272, 308),  # pivot_root, chroot, mount, umount2, unshare, setns
    *(248, 249, 250, 321, 298, 323),  # add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd
    *(303, 304),  # name_to_handle_at, open_by_handle_at
    *(164, 169, 172, 173, 175, 176, 227, 246, 313, 320),  # clocks, reboot, ports, kernel modules, kexec
)
_AARCH64 = (
    *(221, 281),  # execve, execveat
    *(129, 138, 130, 131, 240),  # kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo
    *(198, 203, 202, 200, 201, 242),  # socket, connect, accept, bind, listen, accept4
    *(117, 270, 271, 272),  # ptrace, process_vm_readv, process_vm_writev, kcmp
    *(154, 157, 140, 30, 238, 239),  # setpgid, setsid, setpriority, ioprio_set, migrate_pages, move_pages
    *(52, 53, 54, 55),  # fchmod, fchmodat, fchownat, fchown
    *(88, 45),  # utimensat, truncate
    *(5, 6, 7, 14, 15, 16),  # setxattr, lsetxattr, fsetxattr, removexattr, l…, f…
    *(26, 262),  # inotify_init1, fanotify_init
    *(186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196),  # System V, as above
    *(180, 181),  # mq_open, mq_unlink
    *(41, 51, 40, 39, 97, 268),  # pivot_root, chroot, mount, umount2, unshare, setns
    *(217, 218, 219, 280, 241, 282),  # add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd
    *(264, 265),  # name_to_handle_at, open_by_handle_at
    *(104, 105, 106, 112, 142, 170, 273, 294),  # kexec, kernel modules, clocks, reboot
)
_MACHINES = {
    "x86_64": _Machine(
        code=0xC000003E, clone=56, mmap=9, prctl=157, fcntl=72, ioctl=16, memfd_create=319,
        of_itself=(302, 203, 142, 144, 314), refused=(*_X86_64, *_EVERYWHERE),
    ),
    "aarch64": _Machine(
        code=0xC00000B7, clone=220, mmap=222, prctl=167, fcntl=25, ioctl=29, memfd_create=279,
        of_itself=(261, 122, 118, 119, 274), refused=(*_AARCH64, *_EVERYWHERE),
    ),
}  # fmt: skip
"""`of_itself`: prlimit64, sched_setaffinity, sched_setparam, sched_setscheduler, sched_setattr."""
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
    """Restrict this thread and those that it starts; returns False if that is not possible."""
    known = _MACHINES.get(platform.machine())
    if known is None:
        return False
    instructions = _instructions(known)
    array = (_Filter * len(instructions))(*(_Filter(*each) for each in instructions))
    program = _Program(len(instructions), array)
    try:
        libc.no_new_privileges()
        done = libc.libc().prctl(22, ctypes.c_ulong(2), ctypes.byref(program), ctypes.c_ulong(0))
        libc.checked(done, "seccomp")
    except OSError:
        return False
    return True


def _instructions(machine: _Machine) -> List[_Instruction]:
    """Return the filter. Threads may be created with clone; clone3 fails as if unknown, because a filter
    cannot read its flags.

    memfd_create and shared memory without a file are refused: no limit of a process counts their pages.
    """
    program: List[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, machine.code),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == _MACHINES["x86_64"]:
        program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _REFUSE | _ENOSYS)]
    for number in (_CLONE3, machine.memfd_create):
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | _ENOSYS)]
    for number in machine.refused:
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | _EPERM)]
    for number in machine.of_itself:
        program += _where(number, 0, [(_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _REFUSE | _EPERM)])
    program += _where(machine.prctl, 0, _none_of(_PARENT_DEATH_SIGNAL))
    program += _where(machine.fcntl, 1, _none_of(_OWNERS))
    program += _where(machine.ioctl, 1, _none_of(_OWNERS_OR_INPUT))
    shared = [(_ANY_BIT, 0, 2, _ANONYMOUS), (_ANY_BIT, 0, 1, _SHARED), (_RETURN, 0, 0, _REFUSE | _EPERM)]
    program += _where(machine.mmap, 3, shared)
    program += _where(machine.clone, 0, [(_ANY_BIT, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, _REFUSE | _EPERM)])
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _where(number: int, argument: int, tests: List[_Instruction]) -> List[_Instruction]:
    """Return a block that, for the system call `number`, applies `tests` to the low half of an argument; they
    refuse the call, or it is allowed."""
    block = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), *tests, (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(block), number), *block]


def _none_of(values: Tuple[int, ...]) -> List[_Instruction]:
    refuse = (_RETURN, 0, 0, _REFUSE | _EPERM)
    return [each for value in values for each in ((_EQUAL, 0, 1, value), refuse)]
