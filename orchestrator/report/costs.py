"""The output of `orch costs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.model.counted import counted
from orchestrator.report.units import duration, money, table


def costs_text(costs: Mapping[str, Any], *, running: int) -> str:
    """Tables of leases, projects and months, then totals. `costs`: as `orch costs --json` prints it;
    `running`: how many machines run.
    """
    leases = costs["leases"]
    if not leases:
        return "No lease is recorded, in this project or in another one that this computer knows."
    rows = [["lease", "cloud", "state", "ran", "cost"]]
    rows += [
        [
            one["lease"],
            one["cloud"],
            "open" if one["is_open"] else "closed",
            duration(one["seconds"]),
            money(one["usd"]),
        ]
        for one in leases
    ]
    parts = [table(rows)]
    for heading, sums in (("project", costs["projects"]), ("month", costs["months"])):
        if sums:
            parts.append(table([[heading, "cost"], *([name, money(usd)] for name, usd in sums.items())]))
    parts.append(_total(costs, running))
    return "\n\n".join(parts)


def _total(costs: Mapping[str, Any], running: int) -> str:
    said = f"Total: {money(costs['usd'])}, at the prices of the leases, without tax and network traffic."
    return "\n".join((f"{said} {_now(costs, running)}", *_stored(costs["images"])))


def _stored(images: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if images:
        month = money(sum(one["usd_month"] for one in images))
        yield f"Not counted: {counted(len(images), 'image')}, at most {month} a month: orch image list"


def _now(costs: Mapping[str, Any], running: int) -> str:
    """What runs now, and what it may still cost."""
    rest = money(costs["to_come"])
    if not running:
        if costs["to_come"]:
            return f"A machine that may have been created can cost {rest} until its deadline."
        return "Nothing is running."
    verb, they = (
        ("is", "it runs until its deadline") if running == 1 else ("are", "they run until their deadlines")
    )
    more = f", and {rest} more if {they}" if costs["to_come"] else ""
    return f"{counted(running, 'machine')} {verb} running, at {money(costs['usd_hour'])}/h{more}."
