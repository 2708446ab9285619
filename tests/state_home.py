"""The suite's own state folder: no test marks a lease, or makes a machine, in that of whoever runs it."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from orchestrator.providers.local.store import state_home

_MADE = "ORCH_TEST_STATE"
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class StateHome:
    """`theirs` is the user's folder; what of it was opened for writing is remembered, and fails a test."""

    def __init__(self) -> None:
        self.theirs: Path | None = None
        self._written: list[str] = []

    def install(self) -> None:
        """Set the environment, for this process and those it starts. Workers of one run share the folder."""
        if self.theirs is not None:
            return
        own = os.environ.pop("ORCH_STATE_HOME", None)
        if _MADE not in os.environ:
            self.theirs = Path(own) if own else state_home(os.environ)
            made = tempfile.mkdtemp(prefix="orch-state-")
            atexit.register(_remove, Path(made), os.getpid())
            os.environ[_MADE] = str(self.theirs)
            os.environ["XDG_STATE_HOME"] = made
        else:
            self.theirs = Path(os.environ[_MADE])
        sys.addaudithook(self._hear)

    def take(self) -> list[str]:
        """What was written in the user's folder since the last call."""
        found, self._written = self._written, []
        return found

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITES and self._is_theirs(path):
                self._written.append(str(path))

    def _is_theirs(self, path: object) -> bool:
        return isinstance(path, str) and path.startswith(f"{self.theirs}/")


def _remove(made: Path, maker: int) -> None:
    """Unless machines are left there, which need their folder to be ended."""
    machines = made / "orch" / "machines"
    if os.getpid() == maker and not (machines.is_dir() and any(machines.iterdir())):
        shutil.rmtree(made, ignore_errors=True)


STATE_HOME = StateHome()
