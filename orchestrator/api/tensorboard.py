"""tensorboard: the curves of a run in TensorBoard on this computer, while it trains and afterwards."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import HostError, UsageError
from orchestrator.ledger import Lease
from orchestrator.model import Progress
from orchestrator.model.progress import as_progress, notice
from orchestrator.runs import record_file
from orchestrator.runs.board import PORT, Viewer, require_port, viewer
from orchestrator.runs.find_run import known_ids, known_run, no_such_run, open_with_runs, profile_of
from orchestrator.session.project import Project

_EVERY_S = 5.0


@dataclass(frozen=True)
class Board:
    """What can be shown. `files`, `bytes`: number and size of the files in `logdir` that TensorBoard reads.
    `ended`: whether the run has ended."""

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
        require_port(port, run_id)
    run = _settled(project, run_id, lease)
    if run is not None:
        return _of_the_past(run, show, port, tell)
    if run_id and lease is None and not any(run_id in each.runs for each in open_with_runs(project)):
        raise no_such_run(f"There is no run {run_id} in {project.root}.", run_id, known_ids(project))
    held, known = known_run(project, run_id, lease)
    if known.collected and record_file.read(project.run(known.run_id)) is not None:
        return _of_the_past(project.run(known.run_id), show, port, tell)
    return _of_the_machine(project, held, known.run_id, show, port, tell)


def _settled(project: Project, run_id: str | None, lease: str | None) -> Path | None:
    """Return the folder of a run about which no machine can know more; None if its machine has to be
    asked."""
    if run_id is None and (lease or project.open_leases()):
        return None
    if run_id:
        run = project.run(run_id)
        return run if record_file.read(run) is not None else None
    records = sorted(project.run(".").glob(f"*/{record_file.RECORD}"), key=lambda path: path.stat().st_mtime)
    if not records:
        raise UsageError("This project has no runs.", next_command="orch train")
    return records[-1].parent


def _of_the_past(run: Path, show: Callable[[Board], None] | None, port: int, tell: Progress) -> Board:
    """Return what is here of a run that was pulled, after `show` was called, if there is one."""
    board = _board(run, ended=True)
    if show is not None:
        with viewer(board.logdir, port, tell) as shown:
            show(board)
            shown.wait()
    return board


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
            shown = showing.enter_context(viewer(board.logdir, port, tell))
            show(board)
            _bring_on(board, bring, shown, tell)
        shown.wait()  # after disconnecting, because a connection counts as use of the machine
    return board


def _bring_on(board: Board, bring: Callable[[], Board], shown: Viewer, tell: Progress) -> None:
    """Download new data until the run or TensorBoard has ended."""
    try:
        while not board.ended and not shown.ends_within(_EVERY_S):
            board = bring()
    except HostError:
        notice(tell, f"The connection to the machine of {board.run_id} broke: what came before is shown.")
