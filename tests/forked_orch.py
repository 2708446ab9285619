"""`orch` as a process of its own that begins after the imports: a fork of one that has imported everything.

`Orch` is used as `subprocess.Popen` is. What an interpreter reads as it starts is the server's: a command
that is given another PYTHONPATH, another locale or a terminal becomes a real `python -m orchestrator`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "FORCE_COLOR", "TERMINAL_", "GITHUB_", "_TYPER")
_OF_NO_EFFECT = "PYTHONDONTWRITEBYTECODE"
_LATE = {
    "STORAGE_EMULATOR_HOST": ("orchestrator.providers.gcp.provider", "google.cloud.compute_v1"),
    "AWS_ENDPOINT_URL": ("orchestrator.providers.aws.provider", "tests.clouds.aws_models"),
}
"""What is imported as soon as a command has this variable: its cloud's client, which takes seconds."""


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environ.items() if name.startswith(_AT_START) and name != _OF_NO_EFFECT
    }


@functools.cache
def _server(_pid: int) -> socket.socket:
    """The end to ask by. The server ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.forked_orch", str(theirs.fileno())],
            cwd=ROOT, env=dict(os.environ), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            start_new_session=True,
        )  # fmt: skip
    return ours


_STARTED_WITH = _read_at_start(os.environ)


class Orch(subprocess.Popen[Any]):
    """`orch argv` in a new session; see subprocess.Popen for the rest."""

    def __init__(self, argv: Iterable[str], *, env: Mapping[str, str], **settings: Any) -> None:
        self._forked = _read_at_start(env) == _read_at_start(os.environ) == _STARTED_WITH
        env = dict(env)
        words = [sys.executable, "-m", "orchestrator", *argv]
        super().__init__(words, env=env, start_new_session=True, **settings)

    def _execute_child(self, args: Any, *rest: Any) -> None:  # type: ignore[override]
        cwd, env, pipes = rest[4], rest[5], rest[9:15]
        theirs = (pipes[0], pipes[3], pipes[5])
        streams = [given if given >= 0 else n for n, given in enumerate(theirs)]
        self._forked = self._forked and not any(os.isatty(fd) for fd in streams)
        if not self._forked:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        request = json.dumps({"argv": args[3:], "cwd": os.fspath(cwd or Path.cwd()), "env": env})
        reading, writing = os.pipe()
        try:
            socket.send_fds(_server(os.getpid()), [request.encode()], [*streams, writing])
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
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            self.returncode = int(self._told.readline() or -signal.SIGKILL)
            self._told.close()
        return self.returncode


def orch(
    *argv: str, cwd: Path | None = None, env: Mapping[str, str] = os.environ, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run `orch argv` to its end, as subprocess.run does with text."""
    pipe = subprocess.PIPE
    with Orch(
        argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


# ---------------------------------------------------------------- the server


def _import_all() -> None:
    """Each room but clouds' clients, and the runtime, which is no part of this process."""
    import orchestrator

    left_out = tuple(f"orchestrator.{name}" for name in ("__main__", "runtime.", "providers.", "catalog."))
    for found in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if not found.name.startswith(left_out):
            importlib.import_module(found.name)
    gc.collect()
    gc.freeze()


def serve(asked: socket.socket) -> None:
    """Fork for each request until nobody is left to ask."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _import_all()
    while True:
        message, given, _, _ = socket.recv_fds(asked, 1 << 20, 4)
        if not message:
            return
        request = json.loads(message)
        for module in (each for name in _LATE if name in request["env"] for each in _LATE[name]):
            with contextlib.suppress(ImportError):  # the command says so itself
                getattr(importlib.import_module(module), "parse", int)()
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
        _, status = os.waitpid(pid, 0)
        os.write(telling, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """`python -m orchestrator`, from here on."""
    os.setsid()
    os.chdir(request["cwd"])
    for n, fd in enumerate(streams):
        os.dup2(fd, n)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.path[0] = request["cwd"]
    sys.argv = ["", *request["argv"]]
    try:
        runpy.run_module("orchestrator", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is not None and not isinstance(ended.code, int):
            raise
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code or 0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
