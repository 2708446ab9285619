"""The byte stream to a machine's ssh server: a TCP connection, or the standard streams of a tunnel's program.

It is not trusted: hosts.ssh verifies the host key.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO

from orchestrator.errors import HostError
from orchestrator.model import Endpoint

_END_WITHIN = 2.0


class Piped(socket.socket):
    """One end of a socket pair; the other is a program's input and output. Closing it ends the program."""

    def __init__(self, end: socket.socket, process: subprocess.Popen[bytes], complaints: IO[bytes]) -> None:
        super().__init__(fileno=end.detach())
        self._process = process
        self._complaints = complaints

    def close(self) -> None:
        super().close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(_END_WITHIN)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def complaint(self) -> str:
        """Return the last line that the program wrote to its standard error, "" if none."""
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""


def connected(endpoint: Endpoint, timeout: float) -> socket.socket:
    """Connect to the endpoint, with TCP_NODELAY. Raises OSError, or HostError if the tunnel's program is
    missing.
    """
    if endpoint.proxy:
        return _through(endpoint.proxy, timeout)
    made = socket.create_connection((endpoint.address, endpoint.port), timeout=timeout)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _through(command: Sequence[str], timeout: float) -> Piped:
    ours, theirs = socket.socketpair()
    complaints = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the stream)
    with theirs:
        try:
            process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=complaints,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            absent = shutil.which(command[0]) is None
            why = "is not installed here" if absent else f"could not be started: {error.strerror}"
            raise HostError(
                f"Connecting to this machine needs the program {command[0]}, which {why}."
            ) from error
    piped = Piped(ours, process, complaints)
    piped.settimeout(timeout)
    return piped
