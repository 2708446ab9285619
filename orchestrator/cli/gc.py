"""orch gc: delete machines that are past their deadline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded
from orchestrator.model import clouds

Clouds = Annotated[
    list[str] | None,
    typer.Option(
        "--cloud",
        metavar="CLOUD",
        help=f"{', '.join(clouds.elsewhere())} or {clouds.LOCAL}. Repeatable. "
        "Default: this computer and the clouds of this project's leases.",
    ),
]


@guarded
def gc(
    clouds: Clouds = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be deleted, and delete nothing.")
    ] = False,
    others: Annotated[bool, typer.Option("--others", help="Include machines of other owners.")] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Include machines with results that were not pulled.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete your machines that are past their deadline.

    Meant for a schedule. Exit code 8 if such a machine may still exist, if it was kept because of its
    results, or if a cloud did not answer.
    """
    from orchestrator import api
    from orchestrator.cli import progress

    found = api.gc(
        clouds or api.clouds_of(),
        dry_run=dry_run,
        others=others,
        discard=discard,
        progress=progress.progress(),
    )
    emit("gc", found.as_json(), as_json, gc_text(found.as_json()))
    if not found.proven:
        raise typer.Exit(8)


def gc_text(report: Mapping[str, Any]) -> str:
    """One line per machine, then a summary. `report`: the value that `orch gc --json` prints."""
    from orchestrator.model.counted import counted
    from orchestrator.report.units import money

    machines = report["machines"]
    lines = [_line(machine) for machine in machines]
    removed = "to remove" if report["dry_run"] else "removed"
    lines += [f"{removed:<9} what connected the machines of {one['group']}" for one in report["groups"]]
    lines += [f"{cloud} did not answer: {why}" for cloud, why in report["unseen"].items()]
    seen = ", ".join(cloud for cloud in report["clouds"] if cloud not in report["unseen"]) or "no cloud"
    count = {name: sum(one["outcome"] == name for one in machines) for name in ("ended", "due", "unproven")}
    if not machines:
        return "\n".join([*lines, f"orch has no machine on {seen}."])
    said = [f"{counted(len(machines), 'machine')} on {seen}"]
    said += [f"{count['due']} to delete" if report["dry_run"] else f"{count['ended']} deleted"]
    said += [f"{count['unproven']} may still exist and cost money"] if count["unproven"] else []
    kept = sum(one["outcome"] == "kept" for one in machines)
    said += [f"{kept} kept because of results that were not pulled"] if kept else []
    left = report["price_left_usd_hour"]
    return "\n".join([*lines, "; ".join(said) + f". The remaining machines cost {money(left)}/h."])


def _line(machine: Mapping[str, Any]) -> str:
    from orchestrator.report.units import money

    what = f"{machine['outcome']:<8}  {machine['id']}  {machine['instance_type']}  {machine['zone']}"
    cost = f"{money(machine['price'])}/h"
    since = f", {money(machine['since'])} since its deadline" if machine["since"] else ""
    return f"{what}  {machine['lease']}  {machine['reason']} ({cost}{since})"
