"""Describe a Python interpreter as one JSON object; a program of its own, for Python 3.8 and later.

It is run as `python -I -c <this text>` on either side, so it imports no module of orch; the runtime imports
it.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import sysconfig
from typing import Any, Dict, List

WANTED = ("ssl", "sqlite3", "ctypes", "lzma", "bz2", "zlib", "hashlib", "_hashlib")


def missing() -> List[str]:
    """Return modules of a full standard library that this build lacks."""
    found: List[str] = []
    for name in WANTED:
        try:
            importlib.import_module(name)
        except ImportError:
            found.append(name)
    return found


def _full_version(info: Any) -> str:
    suffix = "" if info.releaselevel == "final" else info.releaselevel[0] + str(info.serial)
    return "%d.%d.%d%s" % (info.major, info.minor, info.micro, suffix)


def markers() -> Dict[str, str]:
    """Return the PEP 508 environment."""
    return {
        "implementation_name": sys.implementation.name,
        "implementation_version": _full_version(sys.implementation.version),
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    }


def libc() -> str:
    """Return the C library as "glibc 2.36"; empty if it is another."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def main() -> None:
    base = getattr(sys, "_base_executable", None) or sys.executable
    print(
        json.dumps(
            {
                "version": platform.python_version(),
                "implementation": sys.implementation.name,
                "flags": getattr(sys, "abiflags", ""),
                "build": sys.version,
                "executable": sys.executable,
                "base_executable": os.path.realpath(base),
                "base_prefix": sys.base_prefix,
                "stdlib": sysconfig.get_path("stdlib"),
                "include": sysconfig.get_path("include", vars={"installed_base": sys.base_prefix}),
                "system": platform.system(),
                "machine": platform.machine(),
                "libc": libc(),
                "missing": missing(),
                "markers": markers(),
            }
        )
    )


if __name__ == "__main__":
    main()
