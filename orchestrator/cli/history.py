"""orch runs: which runs there were."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded


@guarded
def runs(
    profile: Annotated[
        str | None, typer.Argument(metavar="[PROFILE]", help="Only those of this profile: its name or file.")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=1, metavar="N", help="How many, the newest first.")] = 20,
    as_json: Json = False,
) -> None:
    """List this project's runs, the newest first: how each ended, what it proved and cost, where it is.

    With a team's ledger the runs of its other computers are among them. Asks no cloud and no machine.
    """
    from orchestrator.api import Project, history
    from orchestrator.report.history import history_text

    found = history(profile, last=last)
    emit("runs", found.as_json(), as_json, history_text(found, Project.at().up_command))
