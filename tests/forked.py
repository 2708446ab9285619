"""Programs of Python that begin after their imports: forks of a process that has imported everything.

A `Forked` is used as `subprocess.Popen` is. What an interpreter reads as it starts is the server's: a
program that is given another PYTHONPATH, another locale or a terminal becomes a real `python -m module`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "FORCE_COLOR", "TERMINAL_", "GITHUB_", "_TYPER")
_OF_NO_EFFECT = "PYTHONDONTWRITEBYTECODE"


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environ.items() if name.startswith(_AT_START) and name != _OF_NO_EFFECT
    }


@functools.cache
def _server(_pid: int, prepared_by: str) -> socket.socket:
    """The end to ask by. The server ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.forked", prepared_by, str(theirs.fileno())],
            cwd=ROOT, env=dict(os.environ), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            start_new_session=True,
        )  # fmt: skip
    return ours


_USED_S: list[float] = []


def used_s() -> float:
    """Processor time, in seconds, of the programs that were forked for this process and have ended."""
    return sum(_USED_S)


_STARTED_WITH = _read_at_start(os.environ)


class Forked(subprocess.Popen[Any]):
    """`python -m module argv` in a new session; see subprocess.Popen for the rest.

    `prepared_by` names a module with `prepare(environ)`, which is called in the server before each fork:
    it imports what such a program wants.
    """

    def __init__(
        self, module: str, argv: Iterable[str], *, prepared_by: str, env: Mapping[str, str], **settings: Any
    ) -> None:
        self._prepared_by, self._reading = prepared_by, threading.Lock()
        self._forked = _read_at_start(env) == _read_at_start(os.environ) == _STARTED_WITH
        words = [sys.executable, "-m", module, *argv]
        super().__init__(words, env=dict(env), start_new_session=True, **settings)

    def _execute_child(self, args: Any, *rest: Any) -> None:  # type: ignore[override]
        cwd, env, pipes = rest[4], rest[5], rest[9:15]
        theirs = (pipes[0], pipes[3], pipes[5])
        streams = [given if given >= 0 else n for n, given in enumerate(theirs)]
        self._forked = self._forked and not any(os.isatty(fd) for fd in streams)
        if not self._forked:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        request = json.dumps({"argv": args[2:], "cwd": os.fspath(cwd or Path.cwd()), "env": env})
        reading, writing = os.pipe()
        try:
            socket.send_fds(_server(os.getpid(), self._prepared_by), [request.encode()], [*streams, writing])
        finally:
            os.close(writing)
        self._told = os.fdopen(reading, "rb", buffering=0)
        self.pid = int(self._told.readline())
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def poll(self) -> int | None:
        return self._ended(0) if self._forked else super().poll()

    def wait(self, timeout: float | None = None) -> int:
        if not self._forked:
            return super().wait(timeout)
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        """Return its code as soon as it has ended. Several threads may ask."""
        with contextlib.suppress(ValueError):  # another one has closed the pipe, at the end
            if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
                self._read_end()
        return self.returncode

    def _read_end(self) -> None:
        with self._reading:
            if self.returncode is None:
                code, _, seconds = self._told.readline().partition(b" ")
                _USED_S.append(float(seconds or 0))
                self.returncode = int(code or -signal.SIGKILL)
                self._told.close()


# ---------------------------------------------------------------- the server


def serve(asked: socket.socket, prepare: Callable[[Mapping[str, str]], None]) -> None:
    """Fork for each request until nobody is left to ask."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, given, _, _ = socket.recv_fds(asked, 1 << 20, 4)
        if not message:
            return
        request = json.loads(message)
        prepare(request["env"])
        if os.fork() == 0:
            asked.close()
            _watch(request, given)
        for fd in given:
            os.close(fd)


def _watch(request: dict[str, Any], given: list[int]) -> None:
    """Fork the command, and tell its pid and then its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, telling = given
    pid = os.fork()
    if pid == 0:
        os.close(telling)
        _become(request, streams)
        return
    for fd in streams:
        os.close(fd)
    with contextlib.suppress(BrokenPipeError):
        os.write(telling, b"%d\n" % pid)
        _, status, used = os.wait4(pid, 0)
        os.write(telling, b"%d %f\n" % (os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))
    os._exit(0)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """`python -m module`, from here on."""
    os.setsid()
    os.chdir(request["cwd"])
    for n, fd in enumerate(streams):
        os.dup2(fd, n)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.path[0] = request["cwd"]
    module, *argv = request["argv"]
    sys.argv = ["", *argv]
    code: object = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
        if code is not None and not isinstance(code, int):
            raise
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[2])), importlib.import_module(sys.argv[1]).prepare)
