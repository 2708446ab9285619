"""Ways to machines without a public address: programs whose standard streams are the connection."""

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
    """ProviderError(INVALID) naming the first of `programs` (name → how it is installed) that is not here."""
    for name, install in programs.items():
        if shutil.which(name) is None:
            raise ProviderError(
                Fault.INVALID,
                f"{purpose} goes by the program {name}, which is not installed here.",
                code="NoTunnelProgram",
                exists="This command created nothing.",
                next_command=install,
            )


class Tunnels:
    """Whether tunnels lead to ssh servers yet: a machine runs long before its tunnel does."""

    def __init__(self, patience_s: float = 120.0) -> None:
        self._patience_s = patience_s
        self._since: dict[str, float] = {}

    def leads(self, machine: str, command: Sequence[str]) -> bool:
        """Whether an ssh server greets through it. ProviderError, with the program's own words, where none
        has greeted for longer than machines take."""
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
            exists=f"{machine} runs on, and costs.",
            next_command=f"{shlex.join(command)}    # to see why; or: orch down",
        )


def _complaint(command: Sequence[str]) -> str | None:
    """None where an ssh server greets through the tunnel; else the last that its program says."""
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
    """Up to `count` bytes that come within that time, fewer where they end."""
    end = time.monotonic() + patience_s
    found = b""
    while len(found) < count:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        data = os.read(descriptor, count - len(found)) if ready else b""
        if not data:
            break
        found += data
    return found
