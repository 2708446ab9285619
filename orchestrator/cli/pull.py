"""orch pull: download the results of runs that have ended."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json, Lease, run_ids
from orchestrator.cli.output import guarded


@guarded
def pull(
    run_id: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="The run's id. Default: the latest run that was not pulled.",
            autocompletion=run_ids,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Pull every run of the lease that has ended.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="List the files on the machine again, and pull those that were changed or added."
        ),
    ] = False,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="Pull from this store instead of the machine."),
    ] = None,
    lease: Lease = None,
    as_json: Json = False,
) -> None:
    """Download the results of a run and verify them.

    Files are compared with the machine's manifest, and models are loaded and checked. The exit code is that
    of the run; with --all, of the first run that failed.
    """
    from orchestrator.api import pulling
    from orchestrator.cli import progress, runs
    from orchestrator.errors import UsageError

    tell = progress.progress()
    if everything:
        if run_id or again or store:
            raise UsageError(
                "--all cannot be combined with RUN, --again or --store.", next_command="orch pull --all"
            )
        pulled = pulling.pull_all(lease=lease, progress=tell)
        runs.show_pulled(pulled, as_json)
    else:
        pulled = pulling.fetch(run_id, again=again, store=store, lease=lease, progress=tell)
        left = {"unfetched": list(pulled.unfetched), "running": list(pulled.running)}
        runs.show(pulled.records[0], as_json, **left)
    for record in pulled.records:
        runs.leave(record)
