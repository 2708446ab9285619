"""The output of `orch status --team`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.model import LeaseStatus
from orchestrator.model.counted import counted
from orchestrator.model.plain import plain
from orchestrator.report.units import money, table

COLUMNS = 100
_ENDED = 10


def team_text(leases: Sequence[LeaseStatus], up: str) -> str:
    """One row for each open lease and for the latest closed ones, then their total cost."""
    if not leases:
        return f"The team has no leases yet.\nNext: {up}"
    there = [one for one in leases if one.state != "closed"]
    over = [one for one in leases if one.state == "closed"]
    rows = [["lease", "owner", "state", "machine", "run", "$/h", "cost"]]
    rows += [_row(one) for one in [*there, *over[:_ENDED]]]
    parts = [table(rows, fit=COLUMNS)]
    if len(over) > _ENDED:
        parts.append(f"{counted(len(over) - _ENDED, 'older closed lease')}: orch status --team --json")
    parts += [f"{one.lease} could not be read now: {one.stale}" for one in leases if one.stale]
    parts.append(_together(there, leases))
    return "\n".join(parts)


def _row(one: LeaseStatus) -> list[str]:
    ended = one.state == "closed"
    return [
        one.lease,
        one.owner or "unknown",
        "open" if one.state == "unknown" else one.state,
        "-" if ended else plain(one.machine or "not created yet"),
        "-" if ended else _run(one),
        "-" if ended else money(one.price),
        money(one.cost),
    ]


def _run(one: LeaseStatus) -> str:
    """The newest active run that is known, and who started it."""
    going = [run for run in one.runs if _goes_on(run)]
    if not going:
        return "-"
    more = f" and {len(going) - 1} more" if len(going) > 1 else ""
    by = going[-1]["owner"]
    return f"{going[-1]['run_id']}{more}" + (f" by {by}" if by and by != one.owner else "")


def _goes_on(run: Any) -> bool:
    return run["state"] in ("started", "queued", "running") and not run["collected"] and not run["lost"]


def _together(there: Sequence[LeaseStatus], leases: Sequence[LeaseStatus]) -> str:
    spent = money(sum(one.cost for one in leases))
    rate = money(sum(one.price for one in there))
    return f"Total: {spent}; open leases cost {rate}/h."
