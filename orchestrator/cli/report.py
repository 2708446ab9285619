"""orch report: a run, two of them, a sweep, or a lease, as one page."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json, run_ids
from orchestrator.cli.output import emit, guarded


@guarded
def report(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="A run, a sweep or a lease: its id, or a run's folder; default: the newest run.",
            autocompletion=run_ids,
        ),
    ] = None,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="A second run, to be compared with the first.", autocompletion=run_ids
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="html|md|json",
            help="html is written beside run.json; md and json are printed.",
        ),
    ] = "html",
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: Json = False,
) -> None:
    """Write a run, two runs, a sweep or a lease as one HTML page that needs no network.

    It is runs/RUN/report.html, or report.html beside the ledger of the lease; `orch costs` lists leases. It
    can be mailed, printed, and read on a phone. --format md prints a summary for pages of CI jobs.
    """
    from orchestrator import api
    from orchestrator.cli.terminal import ours

    made = api.report(run, other, format=form)
    if made.path is None and not as_json:
        print(ours(made.text))
        return
    emit("report", made.as_json(), as_json, f"{made.page.headline.sentence}\n{made.path}")
    if open_it and made.path is not None:
        typer.launch(made.path.as_uri())
