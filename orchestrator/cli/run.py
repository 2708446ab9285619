"""run: up, train and down in one command that may be repeated."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json, Parallel, Sets
from orchestrator.cli.output import guarded
from orchestrator.errors import EXIT_INTERRUPTED


@guarded
def run(
    profile: Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile, like profiles/digits.yaml.")],
    run_id: Annotated[
        str, typer.Option("--run-id", help="Name the run; a repeated call finds its record, run or machine.")
    ],
    local_parity: Annotated[
        bool,
        typer.Option("--local-parity", help="First prove that the first steps are equal here and there."),
    ] = False,
    resume_proof: Annotated[
        bool,
        typer.Option("--resume-proof", help="First prove here that a killed run goes on exactly."),
    ] = False,
    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed/--no-retry-failed",
            help="Try a run id that failed or was lost again, as the project is now; else rent nothing.",
        ),
    ] = True,
    parallel: Parallel = False,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Up, train and down in one: for a scheduled job that may be started twice."""
    from orchestrator import api
    from orchestrator.cli import progress, runs
    from orchestrator.cli.signals import stopped_as_interrupted

    try:
        with stopped_as_interrupted():
            record = api.run(
                profile,
                run_id=run_id,
                overrides=sets or (),
                local_parity=local_parity,
                resume_proof=resume_proof,
                retry_failed=retry_failed,
                parallel=parallel,
                output=runs.output(as_json),
                progress=progress.progress(),
            )
    except KeyboardInterrupt:
        print("\nInterrupted. Next: the same command, which goes on from here", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    runs.show(record, as_json, started=record.started)
