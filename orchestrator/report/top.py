"""Format what machines and runs are doing now: `orch top`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.model import LeaseStatus
from orchestrator.model.counted import counted
from orchestrator.model.progress import Pace
from orchestrator.report.pace import pace_line
from orchestrator.report.units import duration, money, table


def top_text(
    leases: Sequence[LeaseStatus],
    paces: Mapping[str, Pace],
    problems: Sequence[str],
    *,
    up: str,
    columns: int,
    since: float = 0.0,
) -> str:
    """One row per machine, and the pace of each run. `up`: the command that leases a first machine. `since`:
    seconds since this was asked.
    """
    if not leases:
        return f"This project has no leased machine.\nNext: {up}"
    price = sum(lease.price for lease in leases if lease.state not in ("gone", "closed"))
    lines = [f"{counted(len(leases), 'machine')}, {money(price)}/h", "", _machines(leases, columns)]
    for lease in leases:
        lines += _runs(lease, paces, columns, since)
    lines += ["", *problems] if problems else []
    return "\n".join(lines)


_COLUMNS = ("lease", "state", "type", "zone", "$/h", "so far", "ends in")
_LEAST_IMPORTANT = ("zone", "type", "so far", "$/h", "state")


def _machines(leases: Sequence[LeaseStatus], columns: int) -> str:
    """One row per machine. Columns that do not fit are left out, least important first."""
    rows = [dict(zip(_COLUMNS, _row(lease), strict=True)) for lease in leases]
    shown = list(_COLUMNS)
    for name in (*_LEAST_IMPORTANT, ""):
        text = table([shown, *([row[each] for each in shown] for row in rows)])
        if not name or max(map(len, text.splitlines())) <= columns:
            break
        shown.remove(name)
    return text


def _row(lease: LeaseStatus) -> list[str]:
    left = None if lease.deadline is None else lease.deadline - time.time()
    return [
        lease.lease,
        lease.state,
        lease.instance_type or "-",
        lease.zone or "-",
        money(lease.price),
        money(lease.cost),
        "-" if left is None else "passed" if left < 0 else duration(left),
    ]


def _runs(lease: LeaseStatus, paces: Mapping[str, Pace], columns: int, since: float) -> Iterator[str]:
    for run in lease.runs:
        name, pace = run["run_id"], paces.get(run["run_id"])
        if pace is not None:
            yield f"\n{name}\n  {pace_line(pace, since=since, columns=columns - 2)}"
        elif run["lost"]:
            yield f"\n{name}\n  {run['state']}; its results are lost"
        elif not run["collected"]:
            yield f"\n{name}\n  {run['state']}{_next(run['state'], name)}"


def _next(state: str, name: str) -> str:
    going_on = state in ("started", "queued", "running") or state.startswith("unknown")
    return "" if going_on else f"; orch pull {name}"
