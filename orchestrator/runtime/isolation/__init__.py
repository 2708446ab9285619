"""Leave this process only a read-only view of named paths and one scratch folder.

`isolate(view)` uses what the kernel offers, each layer independent of the others: namespaces (own user,
mounts, network, processes), Landlock, a seccomp filter, resource limits. It returns which layers hold, and
raises nothing because a layer is missing. There is no way back for the process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Dict, Tuple

from . import landlock, limits, namespaces, seccomp

LAYERS = ("namespaces", "landlock", "seccomp")
NEEDED = ("files", "network", "processes")
"""Parts of what `isolate` returns, each of which a layer holds before an untrusted file is parsed."""


@dataclass(frozen=True)
class View:
    """The resources that a confined process may use. Paths are absolute; absent ones are left out.

    `read`: files and folders to read. `scratch`: an existing folder to write to.
    `memory`, `file_size`: bytes. `cpu_seconds`: of all threads together.
    """

    read: Tuple[str, ...]
    scratch: str
    memory: int
    file_size: int
    cpu_seconds: int


def isolate(view: View, layers: Tuple[str, ...] = LAYERS) -> Dict[str, Any]:
    """Enter the isolation. Call it before any thread starts and before any untrusted byte is read.

    With namespaces the caller goes on in a child process; the first process waits and ends with its status.
    Returns user, files, network, processes: the layer that confines each, None where none does.
    """
    linux = sys.platform.startswith("linux")
    held = namespaces.enter(view) if linux and "namespaces" in layers else namespaces.Held()
    files = "namespace" if held.files else None
    if linux:
        namespaces.drop_capabilities()
    if linux and "landlock" in layers and landlock.restrict((*view.read, *namespaces.DEVICES), view.scratch):
        files = f"{files}+landlock" if files else "landlock"
    limits.set_limits(view.memory, view.file_size, view.cpu_seconds)
    filtered = linux and "seccomp" in layers and seccomp.restrict()
    return {
        "user": "namespace" if held.user else None,
        "files": files,
        "network": "namespace" if held.network else "seccomp" if filtered else None,
        "processes": "seccomp" if filtered else "namespace" if held.processes else None,
    }
