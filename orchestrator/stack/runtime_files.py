"""The runtime as files for either side: the package `orch_runtime`, and the `enter.py` that starts it."""

from __future__ import annotations

import hashlib
import shutil
from functools import cache
from pathlib import Path

from orchestrator.hosts.atomic import new_folder
from orchestrator.stack.pack import Member

_SOURCE = Path(__file__).resolve().parent.parent / "runtime"
_ENTER = b'''"""Starts the runtime that lies beside this file."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

if __name__ == "__main__":
    from orch_runtime.__main__ import main

    sys.exit(main(sys.argv[1:]))
'''


@cache
def runtime_members() -> tuple[Member, ...]:
    files = sorted(path for path in _SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    package = (Member(f"orch_runtime/{path.relative_to(_SOURCE)}", path.read_bytes()) for path in files)
    return (Member("enter.py", _ENTER), *package)


@cache
def runtime_digest() -> str:
    """Return sixteen hex digits that change with any byte or file name of the runtime."""
    total = hashlib.sha256()
    for member in runtime_members():
        content = member.source if isinstance(member.source, bytes) else member.source.read_bytes()
        total.update(f"{member.path}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:16]


def lay_out(base: Path) -> Path:
    """Write the runtime below `base` on this computer, unless it is there, and return its folder."""
    final = base / "runtime" / runtime_digest()
    if (final / "enter.py").is_file():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    fresh = new_folder(final.parent)
    for member in runtime_members():
        target = fresh / member.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(member.source if isinstance(member.source, bytes) else member.source.read_bytes())
    fresh.chmod(0o755)
    try:
        fresh.rename(final)
    except OSError:  # another process was faster, with the same content
        shutil.rmtree(fresh, ignore_errors=True)
    return final
