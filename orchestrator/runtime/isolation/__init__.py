"""Leave this process only a read-only view of named paths and one scratch folder.

`isolate(view)` uses what the kernel offers, each layer independently of the others: namespaces (own user,
mounts, network, processes), Landlock, a seccomp filter, resource limits. It returns which layers are active;
a missing layer raises no error. It cannot be undone for the process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Dict, Tuple

from . import landlock, limits, namespaces, seccomp

LAYERS = ("namespaces", "landlock", "seccomp")
NEEDED = ("files", "network", "processes")
"""Parts of the result of `isolate` that must be confined before an untrusted file is parsed."""


@dataclass(frozen=True)
class View:
    """The resources that a confined process may use. Paths are absolute; those that do not exist are ignored.

    `read`: files and folders to read. `scratch`: an existing folder to write to. `memory`, `file_size`:
    bytes. `cpu_seconds`: of all threads together.
    """

    read: Tuple[str, ...]
    scratch: str
    memory: int
    file_size: int
    cpu_seconds: int


def isolate(view: View, layers: Tuple[str, ...] = LAYERS) -> Dict[str, Any]:
    """Enter the isolation. Call it before any thread starts and before any untrusted byte is read.

    With a namespace for processes, the caller continues in a child process; the first process waits and exits
    with the child's status. Returns user, files, network, processes: the layer that confines each, None if
    none does.
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
