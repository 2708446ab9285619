"""orch pull: bring home what ended on a machine."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.output import guarded


@guarded
def pull(
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="A run's id; default: the latest that ended and was not fetched."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every run of the lease that has ended and was not fetched.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="List its files anew on the machine, as they are there now.")
    ] = False,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="Bring RUN from this store; no machine is asked."),
    ] = None,
    lease: Annotated[
        str | None, typer.Option("--lease", help="Which lease, where this folder has several.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One versioned JSON object on stdout.")] = False,
) -> None:
    """Bring home a run that has ended: its files verified, its model checked.

    Exits with the code of how the run ended; with --all, of the first one that did not succeed.
    """
    from orchestrator.api import pulling
    from orchestrator.cli import progress, runs
    from orchestrator.errors import UsageError

    tell = progress.progress()
    if everything:
        if run_id or again or store:
            raise UsageError("--all goes with no RUN, --again or --store.", next_command="orch pull --all")
        pulled = pulling.pull_all(lease=lease, progress=tell)
        runs.show_pulled(pulled, as_json)
    else:
        pulled = pulling.fetch(run_id, again=again, store=store, lease=lease, progress=tell)
        left = {"unfetched": list(pulled.unfetched), "running": list(pulled.running)}
        runs.show(pulled.records[0], as_json, **left)
    for record in pulled.records:
        runs.leave(record)
