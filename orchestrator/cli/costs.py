"""orch costs: show what was spent."""

from __future__ import annotations

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded


@guarded
def costs(as_json: Json = False) -> None:
    """Show the costs of each lease, project and month.

    Reads the ledgers; contacts no cloud.
    """
    from orchestrator.api import costs as sum_up
    from orchestrator.report.costs import costs_text

    found = sum_up()
    emit("costs", found.as_json(), as_json, costs_text(found.as_json(), running=found.running))
