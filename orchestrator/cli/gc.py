"""orch gc: end what outlived its deadline."""

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
        help=f"{', '.join(clouds.elsewhere())} or {clouds.LOCAL}; repeatable. "
        "Default: this computer and the clouds of this folder's leases.",
    ),
]


@guarded
def gc(
    clouds: Clouds = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be ended; end nothing.")] = False,
    others: Annotated[bool, typer.Option("--others", help="Machines of other owners too.")] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Also end machines with results that were not pulled.")
    ] = False,
    as_json: Json = False,
) -> None:
    """End your machines that outlived their deadline, and only those. For a schedule.

    Exit code 8 where a machine that was to be ended may still exist or was kept for its results, or a cloud
    did not answer.
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
    """One line a machine, the sum at the end. See `orch gc --json`."""
    from orchestrator.model.counted import counted
    from orchestrator.report.units import money

    machines = report["machines"]
    lines = [_line(machine) for machine in machines]
    lines += [f"{cloud} did not answer: {why}" for cloud, why in report["unseen"].items()]
    seen = ", ".join(cloud for cloud in report["clouds"] if cloud not in report["unseen"]) or "no cloud"
    count = {name: sum(one["outcome"] == name for one in machines) for name in ("ended", "due", "unproven")}
    if not machines:
        return "\n".join([*lines, f"No machine of orch on {seen}."])
    said = [f"{counted(len(machines), 'machine')} of orch on {seen}"]
    said += [f"{count['due']} to be ended" if report["dry_run"] else f"{count['ended']} ended, proven gone"]
    said += [f"{count['unproven']} may still exist and cost"] if count["unproven"] else []
    kept = sum(one["outcome"] == "kept" for one in machines)
    said += [f"{kept} kept for results that were not pulled"] if kept else []
    left = report["price_left_usd_hour"]
    return "\n".join([*lines, "; ".join(said) + f". What is left costs {money(left)}/h."])


def _line(machine: Mapping[str, Any]) -> str:
    from orchestrator.report.units import money

    what = f"{machine['outcome']:<8}  {machine['id']}  {machine['instance_type']}  {machine['zone']}"
    cost = f"{money(machine['price'])}/h"
    since = f", {money(machine['since'])} since its deadline" if machine["since"] else ""
    return f"{what}  {machine['lease']}  {machine['reason']} ({cost}{since})"
