"""The output of `orch costs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.report.units import duration, money, table


def costs_text(costs: Mapping[str, Any]) -> str:
    """Tables of leases, projects and months, then totals. `costs`: as `orch costs --json` prints it."""
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
    parts.append(_total(costs))
    return "\n\n".join(parts)


def _total(costs: Mapping[str, Any]) -> str:
    said = f"Total: {money(costs['usd'])}, at the prices of the leases, without tax and network traffic."
    if not costs["usd_hour"]:
        return f"{said} Nothing is running."
    now, rest = money(costs["usd_hour"]), money(costs["to_come"])
    return f"{said} Running machines cost {now}/h, and {rest} more if they run until their deadlines."
