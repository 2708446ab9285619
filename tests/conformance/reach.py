"""Real TCP connections between machines of the local provider, from inside their networks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.model import Machine
from orchestrator.providers.local.store import Folder, folders

PATIENCE_S = 0.5
LISTEN = """
import socket, sys
door = socket.socket()
door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    door.bind(("0.0.0.0", int(sys.argv[1])))
    door.listen()
except OSError as error:
    print(error)
print("ready", flush=True)
sys.stdin.read()
"""
CONNECT = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])).close()
"""


@dataclass(frozen=True)
class Reach:
    """`machines`: the folder of the provider."""

    machines: Path

    def __call__(self, machine: Machine, address: str, port: int) -> bool:
        """Have everybody listen at the port, on every address, and connect from `machine`."""
        with ExitStack() as stack:
            for inside in self._networks():
                stack.enter_context(_listening(inside, port))
            dial = [*_inside(Folder(self.machines / machine.id)), sys.executable, "-c", CONNECT]
            dialled = [*dial, address, str(port), str(PATIENCE_S)]
            return subprocess.run(dialled, capture_output=True, check=False).returncode == 0

    def _networks(self) -> list[list[str]]:
        found: dict[str, list[str]] = {}
        for folder in folders(self.machines):
            guest = folder.guest()
            if guest is not None and Path(f"/proc/{guest.pid}").exists():
                found[str(Path(f"/proc/{guest.pid}/ns/net").readlink())] = _inside(folder)
        return list(found.values())


def _inside(folder: Folder) -> list[str]:
    guest = folder.guest()
    assert guest is not None
    return ["nsenter", "--target", str(guest.pid), "--net"]


@contextmanager
def _listening(inside: list[str], port: int) -> Iterator[None]:
    command = [*inside, sys.executable, "-c", LISTEN, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        for line in listener.stdout:
            if line == "ready\n":
                break
        yield
        assert listener.stdin is not None
        listener.stdin.close()
