"""orch watch: see a run to its end, whoever began it."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json, Sets
from orchestrator.cli.output import guarded


@guarded
def watch(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")],
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Follow a run to its end and bring it home, beginning it again as its profile's `retry` allows.

    For a schedule: it may be called at any time, and returns at once where the run has ended. Exits as `orch
    train` or `orch run` would. --set is for secrets of train.env that the first call was given.
    """
    from orchestrator import api
    from orchestrator.cli import progress, runs
    from orchestrator.cli.approval import dearer

    with runs.detachable():
        record = api.watch(
            run_id,
            overrides=sets or (),
            output=runs.output(as_json),
            approve=dearer(),
            progress=progress.progress(),
        )
    runs.show(record, as_json, started=record.started)
