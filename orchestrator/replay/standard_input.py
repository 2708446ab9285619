"""Pass standard input on to a job on this computer, and keep it so that the job can be repeated."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

MOST = 16 << 20
"""Maximum bytes that are kept."""

_BLOCK = 1 << 16


class StandardInput:
    """A context manager. The job reads the named pipe `path`; `consumed` returns what it has read.

    An endless source does not delay anything: the job decides how much it reads, and when it ends.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._folder = tempfile.TemporaryDirectory(prefix="orch-stdin-")
        self.path = Path(self._folder.name) / "stdin"
        os.mkfifo(self.path, 0o600)
        self._both = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)  # opening both ends does not block
        self._writer = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        self._reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._kept = bytearray()
        self._sent = 0

    def __enter__(self) -> StandardInput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._reader)
        self._folder.cleanup()

    def begin(self) -> None:
        """Start to pass input on, once the job has opened `path`."""
        os.close(self._both)
        threading.Thread(target=self._pass_on, daemon=True).start()

    def consumed(self) -> bytes | None:
        """Return the bytes that the job read, after it has ended; None if it read none, or more than was
        kept."""
        sent = self._sent
        left = 0
        with contextlib.suppress(BlockingIOError):
            while block := os.read(self._reader, _BLOCK):
                left += len(block)
        count = sent - left
        return bytes(self._kept[:count]) if 0 < count <= len(self._kept) else None

    def _pass_on(self) -> None:
        try:
            while block := self._block():
                self._kept += block[: MOST - len(self._kept)]
                rest = memoryview(block)
                while rest:
                    count = os.write(self._writer, rest)
                    self._sent += count
                    rest = rest[count:]
        except OSError:  # the reading end is closed
            return
        finally:
            os.close(self._writer)

    def _block(self) -> bytes:
        try:
            number = self._source.fileno()
        except (io.UnsupportedOperation, AttributeError):
            return self._source.read(_BLOCK)
        return os.read(number, _BLOCK)
