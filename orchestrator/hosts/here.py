"""This computer as a host: the same protocol, with child processes."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from orchestrator.errors import HostError
from orchestrator.hosts.atomic import atomic_file
from orchestrator.hosts.command import STOP_GRACE, checked, shown
from orchestrator.hosts.limits import admit, irregular, shrank, too_much
from orchestrator.model import LARGEST_FILE, OUTPUT, Completed

_CHUNK = 1 << 16


class HereHost:
    """Run commands as children of this process, each in its own session, in the current folder."""

    name = "here"

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout: float | None = None,
        most: int = OUTPUT,
    ) -> Completed:
        with self._open(argv, timeout, most) as channel:
            channel.write(stdin or b"")
            channel.close_stdin()
            return channel.wait()

    def open(self, argv: Sequence[str]) -> HereChannel:
        return self._open(argv, None, OUTPUT)

    def put(self, source: bytes | Path, target: str, *, mode: int = 0o644) -> None:
        try:
            with atomic_file(Path(target), mode) as part:
                if isinstance(source, bytes):
                    part.write(source)
                else:
                    with open(source, "rb") as file:
                        shutil.copyfileobj(file, part, 1 << 20)
        except OSError as error:
            raise HostError(f"{target} could not be written on this computer: {error}.") from error

    def get(self, source: str, target: Path, *, most: int = LARGEST_FILE) -> None:
        try:
            if not stat.S_ISREG(os.lstat(source).st_mode):
                raise irregular(source, "this computer")
            fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(fd, "rb") as file:
                size = os.fstat(fd).st_size
                admit(source, "this computer", size, most, target)
                with atomic_file(target) as part:
                    _copy(file, part, size, source)
        except OSError as error:
            raise HostError(f"{source} could not be fetched to {target}: {error}.") from error

    def close(self) -> None:
        """Do nothing: no connection is held."""

    def _open(self, argv: Sequence[str], timeout: float | None, most: int) -> HereChannel:
        words = checked(argv)
        try:
            process = subprocess.Popen(
                [word.encode("utf-8", "surrogateescape") for word in words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except FileNotFoundError:
            return HereChannel(words, _failed_start(words, 127, "not found"), timeout, most)
        except OSError as error:
            why = error.strerror or str(error)
            return HereChannel(words, _failed_start(words, 126, why), timeout, most)
        return HereChannel(words, process, timeout, most)


class HereChannel:
    """One child process, in both directions. Output is read while input is written, so neither side blocks
    the other.
    """

    def __init__(
        self, argv: tuple[str, ...], process: subprocess.Popen[bytes], timeout: float | None, most: int
    ):
        self._argv = argv
        self._most = most
        self._patience: float | None = None
        self._process = process
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._reading = threading.Lock()
        self._stdout = bytearray()
        self._stderr = bytearray()
        assert process.stdin and process.stdout and process.stderr
        self._stdin = process.stdin
        self._sources = {process.stdout.fileno(): self._stdout, process.stderr.fileno(): self._stderr}
        self._out = process.stdout.fileno()
        os.set_blocking(self._stdin.fileno(), False)

    def write(self, data: bytes) -> None:
        """Write all of `data`. If the command has ended, the rest is dropped; `wait` returns how it ended."""
        view = memoryview(data)
        while view and not self._stdin.closed:
            self._begin_waiting()
            self._ready([self._stdin.fileno()], taking=self._reading.acquire(blocking=False))
            try:
                view = view[os.write(self._stdin.fileno(), view[:_CHUNK]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return

    def close_stdin(self) -> None:
        self._stdin.close()

    def patience(self, seconds: float) -> None:
        self._patience = seconds

    def _begin_waiting(self) -> None:
        if self._patience is not None:
            self._timeout, self._deadline = self._patience, time.monotonic() + self._patience

    def read(self, limit: int) -> bytes:
        with self._reading:
            self._begin_waiting()
            while not self._stdout and self._out in self._sources:
                self._take(self._readable(list(self._sources), []))
            data = bytes(self._stdout[:limit])
            del self._stdout[:limit]
            return data

    def wait(self, timeout: float | None = None) -> Completed:
        if timeout is not None:
            self._timeout, self._deadline = timeout, time.monotonic() + timeout
        with self._reading:
            while self._sources:
                self._take(self._readable(list(self._sources), []))
            code = self._ended()
            return Completed(self._argv, code, bytes(self._stdout), bytes(self._stderr))

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._sources.clear()
        if self._process.poll() is None:
            # Nobody reads its output any more. It may continue (a detached command does), but must not become
            # a zombie.
            threading.Thread(target=self._process.wait, daemon=True).start()

    def __enter__(self) -> HereChannel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ready(self, writing: list[int], *, taking: bool) -> None:
        """Wait until input can be written; read output meanwhile, unless another thread reads it."""
        try:
            self._take(self._readable(list(self._sources) if taking else [], writing))
        finally:
            if taking:
                self._reading.release()

    def _readable(self, reading: list[int], writing: list[int]) -> list[int]:
        poll = select.poll()
        for fd in reading:
            poll.register(fd, select.POLLIN)
        for fd in writing:
            poll.register(fd, select.POLLOUT)
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        events = poll.poll(None if left is None else int(left * 1000) + 1)
        if not events and left is not None and time.monotonic() >= (self._deadline or 0):
            self._stop()
        return [fd for fd, _ in events if fd in reading]

    def _take(self, fds: list[int]) -> None:
        for fd in fds:
            data = os.read(fd, _CHUNK)
            if data:
                self._sources[fd] += data
                if len(self._sources[fd]) > self._most:
                    _end_group(self._process)
                    raise too_much(self._argv, "here", self._most)
            else:
                del self._sources[fd]

    def _ended(self) -> int:
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            code = self._process.wait(left)
        except subprocess.TimeoutExpired:
            self._stop()
        return code if code >= 0 else 128 - code

    def _stop(self) -> None:
        _end_group(self._process)
        raise HostError(
            f"`{shown(self._argv)}` did not end here within {self._timeout:g} s, so it was stopped."
        )


def _copy(file: BinaryIO, part: BinaryIO, size: int, source: str) -> None:
    """Copy the first `size` bytes of a file that may grow or shrink meanwhile."""
    left = size
    while left:
        data = file.read(min(left, 1 << 20))
        if not data:
            raise shrank(source, "this computer", size, size - left)
        part.write(data)
        left -= len(data)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_GRACE)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _failed_start(argv: tuple[str, ...], code: int, why: str) -> subprocess.Popen[bytes]:
    """Return the result that a shell gives for a command that cannot be started: its message, and `code`."""
    return subprocess.Popen(
        ["/bin/sh", "-c", 'printf "%s\\n" "$1" >&2; exit "$2"', "sh", f"{argv[0]}: {why}", str(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
