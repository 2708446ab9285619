"""Write down which files a process opened and which folders it listed, even if it makes no training step.

`opened-<process>.json` in a folder: {v, files: see files.Files.seen, modules: [path of each of the project's
own imported modules]}. It is written at the process's end, or by `flush` if the process ends without exit
handlers. Workers of multiprocessing run none: they write a line {path, way} to `opened-<process>.jsonl`
whenever a file is first opened.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from typing import Any, List, Mapping, Optional

from .files import Files
from .native import watch_readers
from .project import Root, library_cache, project_modules, roots

FORMAT = 1

_known: List[Opened] = []


class Opened:
    """Listeners of one process; `files` is listening already. Once TensorFlow is imported, file names that
    are passed to it are noted too."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._pid = os.getpid()
        self._watched = False

    def install(self) -> None:
        """Write when the process ends; note the files that are passed to readers in C."""
        watch_readers(self._files)
        atexit.register(self.write)
        _known.append(self)
        os.register_at_fork(after_in_child=self.as_worker)
        if "--multiprocessing-fork" in getattr(sys, "orig_argv", ()):
            self.as_worker()

    def as_worker(self) -> None:
        """From now on, write each opened file at once, because this process may end without exit handlers."""
        self._files.tell = _Lines(self._files, self._folder).add

    def on_tensorflow(self, tf: Any) -> None:
        """Called when TensorFlow has been imported."""
        if not self._watched:
            self._watched = True
            from .inputs import watch

            watch(tf, self._files, lambda: True)

    def on_keras(self, keras: Any) -> None:
        """Called when a Keras has been imported; does nothing, since it reads through TensorFlow or
        Python."""

    def write(self) -> None:
        """Write what was observed until now. Never raises: a missing fact must not fail the job."""
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


class _Lines:
    """Writes one JSON line for each opened file of a process. Never raises: a missing fact must not fail the
    job."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._place = f"{folder}/opened-{os.getpid()}.jsonl"
        self._roots: Optional[List[Root]] = None
        self._busy = False

    def add(self, path: str, way: str) -> None:
        """Write a line, unless the file is no data."""
        if self._busy:  # opened while a line is being written
            return
        self._busy = True
        try:
            self._roots = self._roots or roots()
            if way == "listed" or self._counts(path):
                self._write(path, way)
        except Exception:
            return
        finally:
            self._busy = False

    def _counts(self, path: str) -> bool:
        known = self._roots or []
        return self._files.is_data(path, known) and not library_cache(path, known)

    def _write(self, path: str, way: str) -> None:
        os.makedirs(os.path.dirname(self._place), exist_ok=True)  # noqa: PTH103, PTH120
        file = os.open(self._place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, (json.dumps({"path": path, "way": way}) + "\n").encode())
        finally:
            os.close(file)


def from_environment(environ: Mapping[str, str]) -> Optional[Opened]:
    """Start an observer that writes into the folder in ORCH_OPENED; None if that variable is not set."""
    folder = environ.get("ORCH_OPENED", "")
    if not folder:
        return None
    files = Files(folder)
    files.listen()
    found = Opened(files, folder)
    found.install()
    return found


def flush() -> None:
    """Write now, because the process is about to end without its exit handlers."""
    for each in _known:
        each.write()
