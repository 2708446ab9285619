"""orch runs: list the runs of a project."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded


@guarded
def runs(
    profile: Annotated[
        str | None, typer.Argument(metavar="[PROFILE]", help="Only runs of this profile (name or file).")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=1, metavar="N", help="How many runs to list.")] = 20,
    as_json: Json = False,
) -> None:
    """List the project's runs, newest first.

    Shows how each run ended, its parity verdict, its cost and where its results are. With a team's ledger,
    runs of other computers are included. Contacts no cloud.
    """
    from orchestrator.api import Project, history
    from orchestrator.report.history import history_text

    found = history(profile, last=last)
    emit("runs", found.as_json(), as_json, history_text(found, Project.at().first_run_command))
