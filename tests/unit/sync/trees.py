"""Trees to be sent, and what is seen of them."""

# ruff: noqa: PTH115, PTH118  (names are bytes here)

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from orchestrator import sync
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent

HOST = HereHost()
HASH = "ab" * 32


def age(top: Path, seconds: float = 60) -> None:
    """Make files look written a while ago, as most are."""
    for path in top.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (time.time() - seconds,) * 2)


def picture(top: Path) -> dict[bytes, object]:
    """All that is below a folder, seen without the code under test."""
    found: dict[bytes, object] = {}
    for folder, folders, files in os.walk(os.fsencode(top)):
        for name in folders + files:
            path = os.path.join(folder, name)
            about = os.lstat(path)
            if stat.S_ISLNK(about.st_mode):
                what: object = os.readlink(path)
            elif stat.S_ISDIR(about.st_mode):
                what = "folder"
            else:
                what = (stat.S_IMODE(about.st_mode), Path(os.fsdecode(path)).read_bytes())
            found[os.path.relpath(path, os.fsencode(top))] = what
    return found


def there(agent: Agent, name: str = "code") -> Path:
    return Path(sync.tree_path(agent, name))


def push(agent: Agent, root: Path, **options: bool) -> sync.Pushed:
    return sync.push(HOST, agent, sync.scan(root), "code", **options)
