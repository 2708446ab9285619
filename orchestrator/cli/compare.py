"""orch compare: find the first difference between two runs, and with --confirm its cause."""

from __future__ import annotations

import os
import shlex
from typing import Annotated

import typer

from orchestrator.cli.options import Json, duration, run_ids
from orchestrator.cli.output import emit, guarded
from orchestrator.cli.screen import screen


@guarded
def compare(
    run_a: Annotated[
        str,
        typer.Argument(
            metavar="RUN_A", help="A run id under runs/, or a run's folder.", autocompletion=run_ids
        ),
    ],
    run_b: Annotated[
        str, typer.Argument(metavar="RUN_B", help="The run to compare it with.", autocompletion=run_ids)
    ],
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm", help="Find the cause by running the first steps again, one change at a time."
        ),
    ] = False,
    budget: Annotated[
        int,
        typer.Option(
            "--budget",
            parser=duration,
            metavar="DURATION",
            help="Time limit of --confirm. Candidates that were not tried are listed.",
        ),
    ] = "120s",  # type: ignore[assignment]  # parsed as if given
    as_json: Json = False,
) -> None:
    """Find the first difference between two runs.

    Recorded runs are compared tensor by tensor, other runs by their run.json and result files. Exit code 0
    if identical, as `orch rerun`, else 7.
    """
    from orchestrator import api
    from orchestrator.cli import progress
    from orchestrator.model.outcomes import Conclusion
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
    """Return the command that can find the cause."""
    from orchestrator.api.comparing import cannot_confirm, recorded_here

    why = cannot_confirm(run_a, run_b)
    if why is None:
        return f"Next: orch compare {run_a} {run_b} --confirm    # finds the cause by running steps again"
    here = recorded_here(run_a, run_b)
    if here is not None:
        names = shlex.join([os.path.relpath(each) for each in here])
        return (
            f"The cause cannot be found by running these steps again: {why}.\n"
            f"Next: orch compare {names} --confirm    # the same steps of both, on this computer"
        )
    return (
        f"The cause cannot be found by running these steps again: {why}.\n"
        "Next: orch train --local-parity    # searches for the cause while it compares"
    )
