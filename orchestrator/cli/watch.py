"""orch watch: follow a run to its end, also one that another process started."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json, Sets, run_ids
from orchestrator.cli.output import guarded


@guarded
def watch(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", autocompletion=run_ids)],
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Follow a run to its end, and retry it as its profile allows.

    Meant for a schedule: it can be called at any time and returns at once if the run has ended. Exit codes
    are those of `orch train`. Use --set to pass the secrets of train.env again.
    """
    from orchestrator import api
    from orchestrator.cli import runs
    from orchestrator.cli.approval import ask_if_more_expensive
    from orchestrator.cli.live import following

    with runs.detachable(), following(as_json) as (output, progress):
        record = api.watch(
            run_id,
            overrides=sets or (),
            output=output,
            approve=ask_if_more_expensive(),
            progress=progress,
        )
    runs.show(record, as_json, started=record.started)
