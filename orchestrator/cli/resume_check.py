"""orch resume-check: kill a job after a checkpoint, resume it, and compare with a run without a break."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json, duration
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.screen import screen
from orchestrator.model.resume import Resumed


@guarded
def resume_check(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The training to check, here.")],
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoints", metavar="DIR", help="Where it writes checkpoints; else found by their names."
        ),
    ] = None,
    budget: Annotated[
        int,
        typer.Option(
            "--budget", parser=duration, metavar="DURATION", help="How long all runs together may take."
        ),
    ] = "30m",  # type: ignore[assignment]  # parsed as if given
    as_json: Json = False,
) -> None:
    """Kill CMD after a checkpoint, resume it, compare with an unbroken run. Exit code 7 unless exact."""
    from orchestrator import api
    from orchestrator.cli import progress
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
