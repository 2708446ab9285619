"""orch rerun: repeat a run from its record, and compare."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json, run_ids
from orchestrator.cli.output import emit, guarded
from orchestrator.errors import EXIT_PARITY


@guarded
def rerun(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run, by its id.", autocompletion=run_ids)],
    run_id: Annotated[
        str | None,
        typer.Option("--run-id", metavar="ID", help="Name the new run. A repeated call continues it."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Give a value of train.env that the record withholds."
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation before spending money.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Repeat a run with the recorded profile, lock, data and code, and compare the two runs.

    The code comes from git and from the copies beside the record; your files are only read. It runs on the
    leased machine, or on one that is created and deleted. Exit code 0 if outputs, metrics and recorded
    tensors are the same, 7 if not; 2 if the run cannot be repeated, else as for `orch train`.
    """
    from orchestrator import api
    from orchestrator.cli import approval
    from orchestrator.cli.live import following
    from orchestrator.report.rerun import rerun_text

    named = ["--run-id", run_id] if run_id else []
    with following(as_json) as (output, progress):
        done = api.rerun(
            run,
            run_id=run_id,
            overrides=sets or (),
            approve=approval.ask(yes, ["orch", "rerun", run, *named]),
            output=output,
            progress=progress,
        )
    emit("rerun", done.as_json(), as_json, rerun_text(done.first, done.record, done.as_json()))
    if not done.same:
        raise typer.Exit(EXIT_PARITY)
