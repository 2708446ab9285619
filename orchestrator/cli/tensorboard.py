"""orch tensorboard: a run's curves, live, in TensorBoard on this computer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import Json, Lease, run_ids
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.terminal import ours

if TYPE_CHECKING:
    from orchestrator.api.tensorboard import Board


@guarded
def tensorboard(
    run_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="The run's id. Default: the latest run.", autocompletion=run_ids
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The port on this computer.")] = 6006,
    lease: Lease = None,
    as_json: Json = False,
) -> None:
    """Show a run in TensorBoard on this computer, live while it trains, until Ctrl-C.

    With --json, only download the files for TensorBoard that exist now, and print their folder.
    """
    from orchestrator.api import tensorboard as board
    from orchestrator.cli import progress

    if as_json:
        found = board.tensorboard(run_id, lease=lease, progress=progress.progress())
        emit("tensorboard", found.as_json(), True, "")
        return
    shown: list[Board] = []

    def show(found: Board) -> None:
        shown.append(found)
        live = "" if found.ended else " New data are downloaded every 5 seconds."
        told = f"{found.run_id}: http://localhost:{port}/\nCtrl-C ends this.{live}"
        print(ours(told), file=sys.stderr, flush=True)

    try:
        board.tensorboard(run_id, lease=lease, show=show, port=port, progress=progress.progress())
    except KeyboardInterrupt:
        if not shown:
            raise
