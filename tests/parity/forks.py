"""A `python` whose scripts are forks of processes that have imported TensorFlow: see forking/."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.parity.forking import kind

_HERE = Path(__file__).parent / "forking"

MOST = 2
"""Processes that wait at once: each holds TensorFlow in memory."""


class Forks:
    """`shim` is that `python`. It lies in `folder`; `python` is the interpreter whose place it takes, and
    `environ` the variables that every script has."""

    HOST = kind.HOST
    """The variable in which a script's process is told the computer's name."""

    def __init__(self, folder: Path, python: Path, environ: Mapping[str, str]) -> None:
        self.shim = folder / "bin" / "python"
        self._sockets = folder / "s"
        self.python = python
        self._environ = dict(environ)
        self._waiting: dict[str, subprocess.Popen[bytes]] = {}
        self._lay_out()

    def close(self) -> None:
        while self._waiting:
            self._end(next(iter(self._waiting)))

    def wait_for(self, environ: Mapping[str, str]) -> None:
        """See that a process waits for scripts that start with these variables."""
        name = kind.socket_name(environ)
        if name in self._waiting:
            self._waiting[name] = self._waiting.pop(name)  # the last that was used
            return
        if len(self._waiting) == MOST:
            self._end(next(iter(self._waiting)))
        waiting = [str(self.python), "-W", "ignore", str(_HERE / "waiting.py"), str(self._sockets / name)]
        process = subprocess.Popen(
            waiting,
            env={**self._environ, **kind.start_variables(environ)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._waiting[name] = process
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", "TensorFlow could not be imported"

    def _end(self, name: str) -> None:
        self._waiting.pop(name).communicate()
        (self._sockets / name).unlink(missing_ok=True)

    def _lay_out(self) -> None:
        self.shim.parent.mkdir(parents=True)
        self._sockets.mkdir()
        body = (_HERE / "python").read_text(encoding="utf-8")
        self.shim.write_text(f"#!{sys.executable} -IS\n{body}", encoding="utf-8")
        self.shim.chmod(0o755)
        shutil.copy(_HERE / "kind.py", self.shim.parent / "kind.py")
        settings = {"python": str(self.python), "sockets": str(self._sockets)}
        (self.shim.parent / "settings.json").write_text(json.dumps(settings))
