"""Writes down which files a process opened and which folders it listed, also where no step is ever made.

`opened-<process>.json` in a folder: {v, files: see files.Files.seen, modules: [path of each of the
project's own imported modules]}. Written at the process's end, and by `flush` where
it ends without exit handlers.
"""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import Any, List, Mapping, Optional

from .files import Files
from .project import project_modules

FORMAT = 1

_known: List[Opened] = []


class Opened:
    """Listeners of one process; `files` listens already. After TensorFlow is imported, it reports which
    files it is to read, too."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._pid = os.getpid()
        self._watched = False

    def install(self) -> None:
        """Write when the process ends."""
        atexit.register(self.write)
        _known.append(self)

    def on_tensorflow(self, tf: Any) -> None:
        """TensorFlow has been imported."""
        if not self._watched:
            self._watched = True
            from .inputs import watch

            watch(tf, self._files, lambda: True)

    def on_keras(self, keras: Any) -> None:
        """A Keras has been imported; it reads by TensorFlow or Python."""

    def write(self) -> None:
        """Write what was seen until now. Never raises: a missing fact is no failed job."""
        if os.getpid() != self._pid:
            return
        try:
            modules = [str(path) for path in project_modules().values()]
            files = self._files.seen()
            if not (modules or files["list"] or files["folders"]):
                return
            from .store import write_json

            os.makedirs(self._folder, exist_ok=True)  # noqa: PTH103
            value = {"v": FORMAT, "files": files, "modules": modules}
            write_json(Path(self._folder) / f"opened-{self._pid}.json", value)
        except Exception:
            return


def from_environment(environ: Mapping[str, str]) -> Optional[Opened]:
    """One that hears from now on and writes into the folder in ORCH_OPENED; None where that names none."""
    folder = environ.get("ORCH_OPENED", "")
    if not folder:
        return None
    files = Files(folder)
    files.listen()
    found = Opened(files, folder)
    found.install()
    return found


def flush() -> None:
    """Write now: the process is about to end without its exit handlers."""
    for each in _known:
        each.write()
