"""Which Python a lock is for, as version specifiers."""

from __future__ import annotations

import re

from orchestrator.model import Lock
from orchestrator.stack.lock import read_toml

_HEADER_LINES = 10
_UV = re.compile(r"--python-version[= ](\d+\.\d+)")
_UV_PYTHON = re.compile(r"(?:--python|-p)[= ](\d+\.\d+)\b")
_PIP_TOOLS = re.compile(r"pip-compile with Python (\d+\.\d+)")


def required_python(lock: Lock) -> str:
    """Return the requires-python of a uv.lock or pylock.toml; "" if it has none."""
    if lock.kind == "requirements":
        return ""
    document = read_toml(lock.path.read_text("utf-8-sig"), lock.path)
    return str(document.get("requires-python", ""))


def compiled_for(lock: Lock) -> str:
    """Return the Python for which requirements were resolved, from the resolver's comment in the file;
    else "".
    """
    if lock.kind != "requirements":
        return ""
    lines = lock.path.read_text("utf-8-sig").splitlines()[:_HEADER_LINES]
    head = "\n".join(line for line in lines if line.startswith("#"))
    found = _UV.search(head) or _UV_PYTHON.search(head) or _PIP_TOOLS.search(head)
    if not found:
        return ""
    return f">={found[1]}" if "--universal" in head else f"=={found[1]}.*"
