"""tensorboard: the curves of a run in TensorBoard on this computer, while it trains and afterwards."""

from __future__ import annotations

import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from orchestrator.errors import HostError, LocalError, UsageError
from orchestrator.ledger import Lease
from orchestrator.model import Progress
from orchestrator.model.progress import as_progress, notice
from orchestrator.runs import record_file
from orchestrator.runs.find_run import known_ids, known_run, no_such_run, open_with_runs, profile_of
from orchestrator.session.project import Project

PORT = 6006
_EVERY_S = 5.0
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


@dataclass(frozen=True)
class Board:
    """What can be shown. `files`, `bytes`: number and size of the files in `logdir` that TensorBoard reads.
    `ended`: whether the run has ended.
    """

    run_id: str
    logdir: str
    files: int
    bytes: int
    ended: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def tensorboard(
    run_id: str | None = None,
    *,
    lease: str | None = None,
    folder: Path | str | None = None,
    show: Callable[[Board], None] | None = None,
    port: int = PORT,
    progress: Progress | Callable[[str], None] | None = None,
) -> Board:
    """Download what the run has written for TensorBoard so far; by default, of the latest run.

    With `show`, start TensorBoard on it, call `show` once it answers, and download new data every five
    seconds until the process is interrupted. Raises UsageError if the run has ended and wrote nothing for
    TensorBoard.
    """
    project, tell = Project.at(folder), as_progress(progress)
    if show is not None:
        _require_port(port, run_id)
    run = _settled(project, run_id, lease)
    if run is not None:
        board = _board(run, ended=True)
        if show is not None:
            with _shown(board, port, tell) as shown:
                show(board)
                shown.wait()
        return board
    if run_id and lease is None and not any(run_id in each.runs for each in open_with_runs(project)):
        raise no_such_run(f"There is no run {run_id} in {project.root}.", run_id, known_ids(project))
    held, known = known_run(project, run_id, lease)
    return _of_the_machine(project, held, known.run_id, show, port, tell)


def _settled(project: Project, run_id: str | None, lease: str | None) -> Path | None:
    """Return the folder of a run about which no machine can know more; None if its machine has to be
    asked.
    """
    if run_id is None and (lease or project.open_leases()):
        return None
    if run_id:
        run = project.run(run_id)
        return run if record_file.read(run) is not None else None
    records = sorted(project.run(".").glob(f"*/{record_file.RECORD}"), key=lambda path: path.stat().st_mtime)
    if not records:
        raise UsageError("This project has no runs.", next_command="orch train")
    return records[-1].parent


def _board(run: Path, *, ended: bool) -> Board:
    from orchestrator.runs import events

    files, size = events.size_in(run)
    if ended and not files:
        raise UsageError(
            f"The run {run.name} wrote nothing for TensorBoard: neither its outputs nor what was brought "
            "while it trained has a file with `tfevents` in its name. A script writes them by "
            'keras.callbacks.TensorBoard("logs"), in a folder of the project.',
            next_command=f"orch report {shlex.quote(run.name)}    # has the curves of other metrics",
        )
    return Board(run.name, str(run), files, size, ended)


def _of_the_machine(
    project: Project,
    lease: Lease,
    run_id: str,
    show: Callable[[Board], None] | None,
    port: int,
    tell: Progress,
) -> Board:
    from orchestrator import jobs
    from orchestrator.leases.remains import naming
    from orchestrator.runs import events
    from orchestrator.session.session import open_session

    run, again = project.run(run_id), f"orch tensorboard {run_id}"
    ledger = project.ledger(lease.id)
    with ExitStack() as showing:
        with (
            naming(ledger, again),
            open_session(project, ledger, profile_of(lease, ()), progress=tell) as session,
        ):

            def bring() -> Board:
                ended = jobs.state(session.host, session.agent, run_id).exit is not None
                events.bring(session.host, session.agent, run_id, run)
                return _board(run, ended=ended)

            board = bring()
            if show is None:
                return board
            shown = showing.enter_context(_shown(board, port, tell))
            show(board)
            _bring_on(board, bring, shown, tell)
        shown.wait()  # after disconnecting, because a connection counts as use of the machine
    return board


def _bring_on(board: Board, bring: Callable[[], Board], shown: _Shown, tell: Progress) -> None:
    """Download new data until the run or TensorBoard has ended."""
    try:
        while not board.ended and not shown.ends_within(_EVERY_S):
            board = bring()
    except HostError:
        notice(tell, f"The connection to the machine of {board.run_id} broke: what came before is shown.")


def _require_port(port: int, run_id: str | None) -> None:
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
def _shown(board: Board, port: int, tell: Progress) -> Iterator[_Shown]:
    """Run TensorBoard on a run's folder, reachable from this computer only, until the block ends."""
    from orchestrator.stack.tool import TENSORBOARD, python_with

    words = ("--logdir", board.logdir, "--host", "127.0.0.1", "--port", str(port), "--reload_interval", "5")
    argv = (str(python_with(TENSORBOARD, tell)), "-I", "-c", _UNTIL_WE_END, *words)
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True
        )
        shown = _Shown(process, port, said)
        try:
            shown.await_answer()
            yield shown
        finally:
            shown.end()


@dataclass(frozen=True)
class _Shown:
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
