"""orch cancel: end a run that goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.output import emit, guarded


@guarded
def cancel(
    run_id: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run's id; default: the latest that goes on.")
    ] = None,
    lease: Annotated[
        str | None, typer.Option("--lease", help="Which lease, where this folder has several.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One versioned JSON object on stdout.")] = False,
) -> None:
    """End a run on its machine; what it wrote can still be pulled.

    Exit code 0 where the run is ended now, also where it had ended before: the answer says which. 12 or
    another code of a lost run where it went with its machine, 2 where the id is not known or the run is
    still being started.
    """
    from orchestrator import api
    from orchestrator.cli import progress
    from orchestrator.report.run import cancel_text

    report = api.cancel(run_id, lease=lease, progress=progress.progress())
    emit("cancel", report.as_json(), as_json, cancel_text(report))
