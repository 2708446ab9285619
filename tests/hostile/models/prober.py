"""A module of the user's that was let in, and is hostile: its class tries everything when it is unpickled."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any


def tried(action: Any) -> str:
    try:
        return f"done: {action()}"
    except BaseException as error:
        return type(error).__name__


class Probe:
    """`state` has home, parent, port and mark: what to read, reach, and make."""

    def __setstate__(self, state: Any) -> None:
        home, mark = Path(state["home"]), Path(state["mark"])
        self.variables = " ".join(f"{name}={value}" for name, value in os.environ.items())
        self.own_environ = tried(lambda: Path("/proc/self/environ").read_bytes())
        self.secret = tried(lambda: (home / ".aws" / "credentials").read_text())
        self.of_parent = tried(lambda: Path(f"/proc/{state['parent']}/environ").read_bytes())
        self.home = tried(lambda: list(home.iterdir()))
        self.started = tried(lambda: subprocess.run(["/bin/sh", "-c", f"touch '{mark}'"], check=True))
        self.system = tried(lambda: 1 / 0 if os.system(f"touch '{mark}'") else "ran")
        self.forked = tried(os.fork)
        self.connected = tried(lambda: socket.create_connection(("127.0.0.1", state["port"]), 2))
        self.local = tried(lambda: socket.socket(socket.AF_UNIX))
        self.written = tried(lambda: mark.write_text("x"))
        self.overwritten = tried(lambda: Path(state["artifact"]).write_text("x"))
        self.killed = tried(lambda: os.kill(state["parent"], 0))
