"""orch resume-check: compare an interrupted and resumed training with an uninterrupted one."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json, duration
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.screen import screen


@guarded
def resume_check(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The training command.")],
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoints",
            metavar="DIR",
            help="Where CMD writes checkpoints. Default: found by file name. Repeatable.",
        ),
    ] = None,
    budget: Annotated[
        int,
        typer.Option(
            "--budget", parser=duration, metavar="DURATION", help="Time limit of all runs together."
        ),
    ] = "30m",  # type: ignore[assignment]  # parsed as if given
    as_json: Json = False,
) -> None:
    """Check that an interrupted training resumes exactly.

    Kills CMD after a checkpoint, resumes it, and compares it with an uninterrupted run. Exit code 7 unless
    they are identical, 2 if CMD writes no checkpoint.
    """
    from orchestrator import api
    from orchestrator.cli import progress
    from orchestrator.model.resume import Resumed
    from orchestrator.report.resume import letter

    found = api.resume_check(
        command, checkpoints=checkpoints or (), budget=budget, progress=progress.progress()
    )
    columns, _ = screen()
    emit("resume-check", found.as_json(), as_json, letter(found, width=columns))
    if found.verdict == Resumed.NO_CHECKPOINT:
        raise typer.Exit(2)
    if found.verdict != Resumed.EXACT:
        raise typer.Exit(7)
