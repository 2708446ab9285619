"""Reach machines without a public address through programs whose standard streams are the connection."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

from orchestrator.errors import Fault, ProviderError

_GREETING_S = 15.0


def require(programs: Mapping[str, str], purpose: str) -> None:
    """Raise ProviderError(INVALID) for the first of `programs` (name to installation hint) that is not
    installed here.
    """
    for name, install in programs.items():
        if shutil.which(name) is None:
            raise ProviderError(
                Fault.INVALID,
                f"{purpose} needs the program {name}, which is not installed here.",
                code="NoTunnelProgram",
                exists="This command created nothing.",
                next_command=install,
            )


class Tunnels:
    """Check whether tunnels reach ssh servers yet: a machine is running long before its tunnel works."""

    def __init__(self, patience_s: float = 120.0) -> None:
        self._patience_s = patience_s
        self._since: dict[str, float] = {}

    def is_open(self, machine: str, command: Sequence[str]) -> bool:
        """Return whether an ssh server answers through the tunnel. Raises ProviderError with the message of
        the tunnel's program if none has answered for longer than machines take to start.
        """
        complaint = _complaint(command)
        if complaint is None:
            return True
        now = time.monotonic()
        waited = now - self._since.setdefault(machine, now)
        if waited < self._patience_s:
            return False
        raise ProviderError(
            Fault.UNKNOWN,
            f"The tunnel to {machine} has not opened for {waited:.0f} s. {command[0]} says: {complaint}",
            code="Tunnel",
            exists=f"{machine} is still running and costs money.",
            next_command=f"{shlex.join(command)}    # to see why; or: orch down",
        )


def _complaint(command: Sequence[str]) -> str | None:
    """Return None if an ssh server answers through the tunnel, else the last line that its program
    printed.
    """
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            if _first(process.stdout.fileno(), 4, _GREETING_S) == b"SSH-":
                return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "nothing"


def _first(descriptor: int, count: int, patience_s: float) -> bytes:
    """Read up to `count` bytes within the time limit; fewer if the stream ends."""
    end = time.monotonic() + patience_s
    found = b""
    while len(found) < count:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        data = os.read(descriptor, count - len(found)) if ready else b""
        if not data:
            break
        found += data
    return found
