"""orch models, orch rollback: which run's model is current."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json, run_ids
from orchestrator.cli.output import emit, guarded


@guarded
def models(
    profile: Annotated[
        Path | None,
        typer.Argument(metavar="[PROFILE]", help="Only the model of this profile, read from its store."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the models that passed the gate of their profile, and which of them is current.

    `models/current` is a link to the folder of the current run. A run that succeeds becomes current if it
    passes `accept:` in the profile.
    """
    from orchestrator import api
    from orchestrator.report.promotion import models_text

    found = [each.as_json() for each in api.models(profile)]
    emit("models", {"models": found}, as_json, models_text(found))


@guarded
def rollback(
    run_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="The accepted run to make current. Default: the previous one.",
            autocompletion=run_ids,
        ),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="Which model, as `orch models` lists it.")
    ] = "current",
    as_json: Json = False,
) -> None:
    """Make the previous model current again."""
    from orchestrator import api
    from orchestrator.cli import progress
    from orchestrator.report.promotion import rollback_text

    found = api.rollback(run_id, model=model, progress=progress.progress()).as_json()
    emit("rollback", found, as_json, rollback_text(found))
