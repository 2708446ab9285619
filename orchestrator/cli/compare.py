"""orch compare: two recorded runs, tensor by tensor; with --confirm also why they differ."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json, duration
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.screen import screen
from orchestrator.model.outcomes import Conclusion


@guarded
def compare(
    run_a: Annotated[str, typer.Argument(help="A run: a folder, or an id under runs/.")],
    run_b: Annotated[str, typer.Argument(help="The other one.")],
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm", help="Find the cause: run the first steps again, one difference imposed at a time."
        ),
    ] = False,
    budget: Annotated[
        int,
        typer.Option(
            "--budget",
            parser=duration,
            metavar="DURATION",
            help="How long --confirm may take; what it did not try is said.",
        ),
    ] = "120s",  # type: ignore[assignment]  # parsed as if given
    as_json: Json = False,
) -> None:
    """Compare two recorded runs tensor by tensor, others by their records. Exit code 7 unless identical."""
    from orchestrator import api
    from orchestrator.cli import progress
    from orchestrator.report.parity import letter

    found = api.compare(run_a, run_b, confirm=confirm, budget=budget, progress=progress.progress())
    columns, colour = screen()
    text = letter(found.as_json(), width=columns, colour=colour)
    if not confirm and found.verdict in (Conclusion.EQUIVALENT, Conclusion.DIVERGENT) and not found.recorded:
        text += f"\n{_next(run_a, run_b)}"
    emit("compare", found.as_json(), as_json, text)
    if found.verdict != Conclusion.IDENTICAL:
        raise typer.Exit(7)


def _next(run_a: str, run_b: str) -> str:
    """How the cause can be found: by running again here, or by recordings that can be run again."""
    from orchestrator.api.comparing import cannot_confirm

    why = cannot_confirm(run_a, run_b)
    if why is None:
        return f"Next: orch compare {run_a} {run_b} --confirm    # finds the cause, by running again"
    return (
        f"The cause cannot be found by running again: {why}.\n"
        "Next: orch train --local-parity    # looks for the cause while it compares"
    )
