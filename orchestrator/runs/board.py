"""TensorBoard on this computer, on the folder of a run."""

from __future__ import annotations

import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from orchestrator.errors import LocalError
from orchestrator.model import Progress

PORT = 6006
_MOST_SAID = 1 << 20
_STARTS_S = 60.0
"""Seconds for TensorBoard to answer."""
_UNTIL_WE_END = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
from tensorboard.main import run_main
run_main()
"""
"""Runs TensorBoard as long as its standard input is open, so that it ends with this process in any case."""


def require_port(port: int, run_id: str | None) -> None:
    """Raise LocalError if the port of this computer is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            run = f" {shlex.quote(run_id)}" if run_id else ""
            raise LocalError(
                f"Port {port} of this computer cannot be used: {error.strerror}.",
                next_command=f"orch tensorboard{run} --port {port + 1 if port < 65535 else PORT}",
            ) from None


@contextmanager
def viewer(logdir: str, port: int, tell: Progress) -> Iterator[Viewer]:
    """Run TensorBoard on a run's folder, reachable from this computer only, until the block ends."""
    from orchestrator.stack.tool import TENSORBOARD, python_with

    words = ("--logdir", logdir, "--host", "127.0.0.1", "--port", str(port), "--reload_interval", "5")
    argv = (str(python_with(TENSORBOARD, tell)), "-I", "-c", _UNTIL_WE_END, *words)
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True
        )
        board = Viewer(process, port, said)
        try:
            board.await_answer()
            yield board
        finally:
            board.end()


@dataclass(frozen=True)
class Viewer:
    """A running TensorBoard; `said`: its output."""

    process: subprocess.Popen[bytes]
    port: int
    said: IO[bytes]

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def ends_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.has_ended

    def wait(self) -> None:
        """Wait until TensorBoard ends. Raises LocalError then, because it does not end by itself."""
        self.process.wait()
        raise self._failed("ended")

    def await_answer(self) -> None:
        until = time.monotonic() + _STARTS_S
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self.ends_within(0.2):
                raise self._failed("did not start")
        raise self._failed(f"did not answer within {_STARTS_S:.0f} s")

    def _failed(self, how: str) -> LocalError:
        from orchestrator.model.plain import last_words

        self.said.seek(0)
        said = last_words(self.said.read(_MOST_SAID)) or "it said nothing"
        return LocalError(f"TensorBoard {how}: {said}", next_command="orch tensorboard --port 6007")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
