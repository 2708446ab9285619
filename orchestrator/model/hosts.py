"""A way onto a machine: commands, files, and the runtime that is installed there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

FAR_BASE = "/opt/orch"
"""The folder of everything that orch has on a machine."""

OUTPUT = 1 << 25
"""Bytes of a command's output, and of its standard error, that are accepted unless the caller allows more."""

LARGEST_FILE = 1 << 40
"""Bytes of the largest file that is fetched."""


@dataclass(frozen=True)
class Completed:
    """A command that ended. `returncode` is 128 + n if signal n ended it."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes


class Channel(Protocol):
    """A running command with its stdin and stdout. A context manager: leaving it closes the channel."""

    def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    def patience(self, seconds: float) -> None:
        """Set a time limit: a read or write during which nothing moves for `seconds` raises HostError."""

    def read(self, limit: int) -> bytes:
        """Return up to `limit` bytes of its stdout, at least one; b"" at its end."""

    def wait(self, timeout: float | None = None) -> Completed:
        """Wait for the command to end; `stdout` of the result holds what was not read. Call after
        close_stdin.
        """

    def close(self) -> None: ...
    def __enter__(self) -> Channel: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Host(Protocol):
    """A way onto a machine. Raises HostError.

    Commands are argument lists, never shell text; quoting happens inside, in one place. A command that fails
    has a returncode; that is not an exception.
    """

    name: str

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout: float | None = None,
        most: int = OUTPUT,
    ) -> Completed:
        """Run a command until it ends. If it writes more than `most` bytes it is stopped, and
        MalformedAnswer is raised.
        """

    def open(self, argv: Sequence[str]) -> Channel: ...

    def put(self, source: bytes | Path, target: str, *, mode: int = 0o644) -> None:
        """Write `target` whole or not at all; its folder is created."""

    def get(self, source: str, target: Path, *, most: int = LARGEST_FILE) -> None:
        """Fetch one regular file, whole or not at all, with the length that it has when the fetch begins.

        Raise FileRefused if it is not a regular file or is larger than `most` bytes, LocalError if the disk
        would fill up.
        """

    def close(self) -> None: ...


_WITH_PACKAGES = frozenset(("attest", "check-model", "gpus"))
"""Verbs that look at the packages of their interpreter.

The others use the standard library alone, and start without `site`: its .pth files can take longer than the
verb, or fail.
"""


@dataclass(frozen=True)
class Agent:
    """The runtime on one side: a Python interpreter, the runtime's folder, and orch's base folder there."""

    python: str
    root: str
    base: str

    def argv(self, verb: str, *arguments: str) -> tuple[str, ...]:
        """Return the command that runs one verb of the runtime on that side."""
        isolated = "-I" if verb in _WITH_PACKAGES else "-IS"
        return (self.python, isolated, f"{self.root}/enter.py", verb, *arguments)
