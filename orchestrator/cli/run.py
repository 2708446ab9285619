"""orch run: up, train and down as one repeatable command."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json, LocalParity, Parallel, ProfilePath, ResumeProof, Sets, chosen
from orchestrator.cli.output import guarded


@guarded
def run(
    run_id: Annotated[
        str,
        typer.Option("--run-id", metavar="ID", help="Name the run. A repeated call continues or returns it."),
    ],
    profile: ProfilePath = None,
    local_parity: LocalParity = False,
    resume_proof: ResumeProof = False,
    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed/--no-retry-failed",
            help="Whether to make a new attempt if the run id has failed or was lost before.",
        ),
    ] = True,
    parallel: Parallel = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Return once the run has started; the same command later finishes it."),
    ] = False,
    sets: Sets = None,
    yes: Annotated[  # noqa: ARG001 (there is no question)
        bool, typer.Option("--yes", "-y", help="No effect: `orch run` never asks.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run up, train and down as one repeatable command.

    Meant for a schedule: called twice with the same id, it trains once. It deletes the machine that it
    created.
    """
    from orchestrator import api
    from orchestrator.cli import runs
    from orchestrator.cli.live import following

    with following(as_json) as (output, progress):
        record = api.run(
            chosen(profile),
            run_id=run_id,
            overrides=sets or (),
            local_parity=local_parity,
            resume_proof=resume_proof,
            retry_failed=retry_failed,
            parallel=parallel,
            detach=detach,
            output=output,
            progress=progress,
        )
    runs.show(record, as_json, started=record.started)
