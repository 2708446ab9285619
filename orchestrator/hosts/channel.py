"""One command over ssh, in both directions at once, on a channel of an open connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

import paramiko

from orchestrator.errors import HostError
from orchestrator.hosts.command import shown
from orchestrator.hosts.limits import too_much
from orchestrator.model import Completed
from orchestrator.model.answers import malformed
from orchestrator.model.plain import last_words

_CHUNK = 1 << 15
_ALL = 1 << 22
"""More bytes than the ssh window lets arrive unread. The library moves what a read leaves in its buffer, so
that reading a full one in small parts takes longer than its decryption.
"""
_NOISE = 1 << 20
"""Maximum bytes that a login shell may print before the command begins."""
_LAST_STATUS = 255
_DIGITS = 12
_POLL = 0.1
"""Seconds between checks of the other stream and of the time limit while one stream is silent."""


class AfterMark:
    """The bytes of a stream from the line that starts with `mark`; what precedes it is dropped."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self.noise = bytearray()
        self.line: bytes | None = None
        """The marked line itself, without its end; None until it has arrived."""

    def feed(self, data: bytes) -> bytes:
        if self.line is not None:
            return data
        begin = max(0, len(self.noise) - len(self._mark) - 40)
        self.noise += data
        start = self.noise.find(self._mark, begin)
        end = self.noise.find(b"\n", start)
        if start < 0 or end < 0:
            return b""
        self.line = bytes(self.noise[start:end])
        return bytes(self.noise[end + 1 :])


class SshChannel:
    """A running command. One thread may write while another reads."""

    def __init__(
        self,
        argv: tuple[str, ...],
        raw: paramiko.Channel,
        mark: bytes,
        timeout: float | None,
        most: int,
        *,
        name: str,
        lost: Callable[[str], HostError],
        stop: Callable[[int], None],
        signal_of: Callable[[], int | None],
    ) -> None:
        self._argv = argv
        self._raw = raw
        self._name = name
        self._most = most
        self._patience: float | None = None
        self._lost = lost
        self._stop = stop
        self._signal_of = signal_of
        self._set_timeout(timeout)
        self._reading = threading.Lock()
        self._stdout, self._stderr = bytearray(), bytearray()
        self._out_mark, self._err_mark = AfterMark(mark), AfterMark(mark)
        raw.settimeout(_POLL)

    def write(self, data: bytes) -> None:
        """Write all of `data`. If the command has ended, the rest is dropped; `wait` returns how it ended."""
        view = memoryview(data)
        self._begin_waiting()
        with self._contact():
            while view:
                self._take_what_came()
                try:
                    sent = self._raw.send(bytes(view[:_CHUNK]))
                except TimeoutError:
                    self._check_deadline()
                    continue
                except OSError:
                    sent = 0
                if not sent:
                    return self._check_contact()
                view = view[sent:]
                self._begin_waiting()
        return None

    def close_stdin(self) -> None:
        with self._contact():
            try:
                self._raw.shutdown_write()
            except OSError:
                self._check_contact()

    def patience(self, seconds: float) -> None:
        self._patience = seconds

    def read(self, limit: int) -> bytes:
        with self._reading, self._contact():
            self._begin_waiting()
            while not self._stdout and self._receive():
                pass
            data = bytes(self._stdout[:limit])
            del self._stdout[:limit]
            return data

    def wait(self, timeout: float | None = None) -> Completed:
        if timeout is not None:
            self._set_timeout(timeout)
        with self._reading, self._contact():
            while self._receive():
                pass
            self._receive_rest_of_stderr()
            code = self._returncode()
            return Completed(self._argv, code, bytes(self._stdout), bytes(self._stderr))

    def close(self) -> None:
        with suppress(paramiko.SSHException, OSError, EOFError):  # without contact there is nothing to close
            self._raw.close()

    def __enter__(self) -> SshChannel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _contact(self) -> Iterator[None]:
        """Translate the library's errors of sending: EOFError, or a hanging key exchange.

        Reads send too, to enlarge the ssh window.
        """
        try:
            yield
        except (paramiko.SSHException, EOFError) as error:
            raise self._lost(f"while `{shown(self._argv)}` ran") from error

    def _begin_waiting(self) -> None:
        if self._patience is not None:
            self._set_timeout(self._patience)

    def _set_timeout(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout

    def _receive(self) -> bool:
        """Wait for output and store it; returns False at the end of stdout."""
        self._receive_stderr()
        try:
            data = self._raw.recv(_ALL)
        except TimeoutError:
            self._check_deadline()
            return True
        if data:
            self._take(self._stdout, self._out_mark, data)
            return True
        self._check_whole()
        return False

    def _take_what_came(self) -> None:
        """Read available output while writing, so that both sides never wait for each other to read."""
        if not self._reading.acquire(blocking=False):
            return  # another thread is reading
        try:
            while self._raw.recv_ready():
                self._take(self._stdout, self._out_mark, self._raw.recv(_ALL))
            self._receive_stderr()
        finally:
            self._reading.release()

    def _receive_stderr(self) -> None:
        while self._raw.recv_stderr_ready():
            self._take(self._stderr, self._err_mark, self._raw.recv_stderr(_ALL))

    def _receive_rest_of_stderr(self) -> None:
        while True:
            try:
                data = self._raw.recv_stderr(_ALL)
            except TimeoutError:
                self._check_deadline()
                continue
            if not data:
                return
            self._take(self._stderr, self._err_mark, data)

    def _take(self, stream: bytearray, mark: AfterMark, data: bytes) -> None:
        stream += mark.feed(data)
        noisy = mark.line is None and len(mark.noise) > _NOISE
        if len(stream) > self._most or noisy:
            self._end()
            raise too_much(self._argv, self._name, self._most if stream else _NOISE)

    def _returncode(self) -> int:
        while not self._raw.exit_status_ready():
            time.sleep(0.005)
            self._check_deadline()
        self._check_whole()
        if self._out_mark.line is None:
            raise self._not_started()
        code = self._raw.recv_exit_status()
        if code > _LAST_STATUS:
            raise malformed(self._name, f"`{shown(self._argv)}`", f"an exit status of {code}")
        if code >= 0:
            return code
        number = self._signal_of()
        if number is None:
            raise self._lost(f"while `{shown(self._argv)}` ran")
        return 128 + number

    def _check_whole(self) -> None:
        """Raise if the other side did not confirm the end of its output, which may then be incomplete."""
        if not self._raw.eof_received:
            raise self._lost(f"while `{shown(self._argv)}` ran")

    def _check_contact(self) -> None:
        if not self._raw.get_transport().is_active():
            raise self._lost(f"while `{shown(self._argv)}` ran")

    def _check_deadline(self) -> None:
        if self._deadline is None or time.monotonic() < self._deadline:
            return
        line = self._out_mark.line
        self._end()
        raise HostError(
            f"`{shown(self._argv)}` did not end within {self._timeout:g} s, so it was stopped."
            if line is not None
            else f"`{shown(self._argv)}` had not begun after {self._timeout:g} s.",
            next_command="orch status",
        )

    def _end(self) -> None:
        """Kill the command, if its process id is known, and close the channel."""
        group = (self._out_mark.line or b"").split()[-1:]
        try:
            if group and group[0].isdigit() and len(group[0]) < _DIGITS:
                self._stop(int(group[0]))
        except HostError:
            pass  # the machine did not stop it; its output is ignored from here on
        finally:
            self.close()

    def _not_started(self) -> HostError:
        said = last_words(bytes(self._out_mark.noise + self._err_mark.noise))
        return HostError(
            f"The login shell ended before `{shown(self._argv)}` began. Its output: {said or 'nothing'}"
        )
