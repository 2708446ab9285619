"""The leases of a team, as a table."""

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
    """A row for each open lease and for the newest that ended; then what they cost together."""
    if not leases:
        return f"Nobody of the team has leased anything yet.\nNext: {up}"
    there = [one for one in leases if one.state != "closed"]
    over = [one for one in leases if one.state == "closed"]
    rows = [["lease", "owner", "state", "machine", "run", "$/h", "cost"]]
    rows += [_row(one) for one in [*there, *over[:_ENDED]]]
    parts = [table(rows, fit=COLUMNS)]
    if len(over) > _ENDED:
        parts.append(f"{counted(len(over) - _ENDED, 'older lease')} that ended: orch status --team --json")
    parts += [f"{one.lease} was not read now: {one.stale}" for one in leases if one.stale]
    parts.append(_together(there, leases))
    return "\n".join(parts)


def _row(one: LeaseStatus) -> list[str]:
    ended = one.state == "closed"
    return [
        one.lease,
        one.owner or "unknown",
        "open" if one.state == "unknown" else one.state,
        "-" if ended else plain(one.machine or "not made yet"),
        "-" if ended else _run(one),
        "-" if ended else money(one.price),
        money(one.cost),
    ]


def _run(one: LeaseStatus) -> str:
    """The run that goes on, as far as is known, and who began it; of several the newest."""
    going = [run for run in one.runs if _goes_on(run)]
    if not going:
        return "-"
    more = f" and {len(going) - 1} more" if len(going) > 1 else ""
    by = going[-1]["owner"]
    return f"{going[-1]['run_id']}{more}" + (f" by {by}" if by and by != one.owner else "")


def _goes_on(run: Any) -> bool:
    return run["state"] in ("started", "running") and not run["collected"] and not run["lost"]


def _together(there: Sequence[LeaseStatus], leases: Sequence[LeaseStatus]) -> str:
    spent = money(sum(one.cost for one in leases))
    rate = money(sum(one.price for one in there))
    return f"Together {spent}; what is open costs {rate}/h."
