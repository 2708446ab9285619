"""Call functions of the C library that Python's standard library does not offer."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any, Dict

_LIBC: Any = None

NUMBERS: Dict[str, Dict[str, int]] = {
    "x86_64": {"pivot_root": 155, "capset": 126},
    "aarch64": {"pivot_root": 41, "capset": 91},
}
"""System calls whose number depends on the architecture. Newer ones have the same number everywhere."""


def libc() -> Any:
    global _LIBC
    if _LIBC is None:
        _LIBC = ctypes.CDLL(None, use_errno=True)
    return _LIBC


def checked(result: int, what: str) -> int:
    """Return the `result` of a C function. Raises OSError if it is negative."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(number: int, *arguments: Any) -> int:
    """Make a system call by its number. Raises OSError."""
    return checked(libc().syscall(ctypes.c_long(number), *arguments), f"system call {number}")


def numbered(name: str) -> int:
    """Return the number of a system call on this architecture. Raises OSError if it is unknown."""
    numbers = NUMBERS.get(platform.machine())
    if numbers is None:
        raise OSError(f"the number of {name} on {platform.machine()} is not known")
    return numbers[name]


def prctl(option: int, argument: int = 0) -> None:
    zero = ctypes.c_ulong(0)
    done = libc().prctl(ctypes.c_int(option), ctypes.c_ulong(argument), zero, zero, zero)
    checked(done, f"prctl {option}")


def no_new_privileges() -> None:
    """Prevent set-user-id programs from granting privileges. Landlock and seccomp need this without root."""
    prctl(38, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    prctl(1, 9)
