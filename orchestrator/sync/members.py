"""List the paths that a scan of a folder would send, without reading a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from orchestrator.runtime.transfer import tree
from orchestrator.runtime.transfer.entries import text
from orchestrator.sync.ignore import Ignore


def members(root: Path, *, ignore: Sequence[str] = (), data: bool = False) -> frozenset[str]:
    """Return the relative paths of all files and links below the folder `root` that `scan` would send;
    none if there is no such folder. Arguments as in `scan`.
    """
    top = root.resolve()
    if not top.is_dir():
        return frozenset()
    listed = tree.survey(os.fspath(text(os.fsencode(top))), Ignore(top, ignore, gitignore=not data))
    return frozenset(found.row.path for found in listed.found if found.row.kind != "dir")
