"""orch cancel: stop an active run."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json, Lease, run_ids
from orchestrator.cli.output import emit, guarded


@guarded
def cancel(
    run_id: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="The run's id. Default: the latest active run.", autocompletion=run_ids
        ),
    ] = None,
    lease: Lease = None,
    as_json: Json = False,
) -> None:
    """Stop a run; the files that it wrote can still be pulled.

    Exit codes: 0 the run has ended, now or earlier; 2 the id is unknown or the run is still starting;
    12 the run was lost with its machine.
    """
    from orchestrator import api
    from orchestrator.cli import progress
    from orchestrator.report.run import cancel_text

    report = api.cancel(run_id, lease=lease, progress=progress.progress())
    emit("cancel", report.as_json(), as_json, cancel_text(report))
