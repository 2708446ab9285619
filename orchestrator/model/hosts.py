"""A way onto a machine: commands, files, and the runtime that lies there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

FAR_BASE = "/opt/orch"
"""Where everything of ours lives on a machine."""

OUTPUT = 1 << 25
"""Bytes of a command's output, and of its standard error, that are taken in unless the caller says more."""

LARGEST_FILE = 1 << 40
"""Bytes of one file that is fetched."""


@dataclass(frozen=True)
class Completed:
    """A command that ended. `returncode` is 128 + n where signal n ended it."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes


class Channel(Protocol):
    """One running command, both ways. A context manager: leaving it closes the channel."""

    def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    def patience(self, seconds: float) -> None:
        """From now on a read or a write in which nothing moves for so long raises HostError."""

    def read(self, limit: int) -> bytes:
        """Up to `limit` bytes of its stdout, at least one; b"" at its end."""

    def wait(self, timeout: float | None = None) -> Completed:
        """Its end; `stdout` holds what was not read. Call after close_stdin."""

    def close(self) -> None: ...
    def __enter__(self) -> Channel: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Host(Protocol):
    """A way onto a machine: a door, not a manager. Raises HostError.

    Commands are argument lists, never shell text; the one place that quotes is inside.
    A command's failure is its returncode, not an exception.
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
        """Run a command to its end. Where it says more than `most` bytes it is stopped: MalformedAnswer."""

    def open(self, argv: Sequence[str]) -> Channel: ...

    def put(self, source: bytes | Path, target: str, *, mode: int = 0o644) -> None:
        """Write `target` whole or not at all; its folder is made."""

    def get(self, source: str, target: Path, *, most: int = LARGEST_FILE) -> None:
        """Fetch one regular file, whole or not at all, as long as it is when the fetch begins.

        FileRefused where it is none or larger than `most` bytes, LocalError where the disk would fill.
        """

    def close(self) -> None: ...


@dataclass(frozen=True)
class Agent:
    """The runtime as it lies on one side: an interpreter, the runtime's folder, and our base folder there."""

    python: str
    root: str
    base: str

    def argv(self, verb: str, *arguments: str) -> tuple[str, ...]:
        """The command that runs one verb of the runtime on that side."""
        return (self.python, "-I", f"{self.root}/enter.py", verb, *arguments)
