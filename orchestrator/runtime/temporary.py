"""Temporary folders: those that everybody uses, and one of a run's own"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from typing import Dict, Iterator, Mapping

EVERYBODYS = ("/tmp", "/var/tmp")


@contextmanager
def own_temporary(environ: Mapping[str, str]) -> Iterator[Dict[str, str]]:
    """The environment with a TMPDIR of its own, removed at the end; as it was where there is no room.

    It lies where temporary files lie already, and its path is short: sockets lie in it, too.
    """
    try:
        folder = tempfile.mkdtemp(prefix="orch-", dir=environ.get("TMPDIR") or None)
    except OSError:
        yield dict(environ)
        return
    try:
        yield {**environ, "TMPDIR": folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
