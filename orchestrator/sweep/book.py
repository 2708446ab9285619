"""The files of a sweep: `runs/<id>/sweep.json` and `sweep.csv`, beside its runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from difflib import get_close_matches

from orchestrator.errors import UsageError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.model.answers import LONG, Malformed, decoded
from orchestrator.model.files import regular_bytes
from orchestrator.model.sweeps import Sweep
from orchestrator.session.project import SWEEP_RECORD, Project
from orchestrator.sweep.matrix import PROFILE_IS

RECORD, TABLE = SWEEP_RECORD, "sweep.csv"
_FACTS = ("state", "reason", "seconds", "usd", "attempts")
"""Columns after the parameters. A metric of such a name, or of a parameter's, is in `metric.NAME`."""


def write(project: Project, sweep: Sweep) -> None:
    """Write both files. Raises OSError."""
    folder = project.run(sweep.sweep)
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / TABLE, _table(sweep).encode())
    atomic_write(folder / RECORD, json.dumps(sweep.as_json(), indent=1).encode())


def read(project: Project, sweep: str) -> Sweep | None:
    """Return the sweep as it was last written, None if there is none. Raises UsageError if its file is
    damaged.
    """
    place = project.run(sweep) / RECORD
    try:
        return decoded(Sweep, regular_bytes(place, LONG), most=LONG)
    except FileNotFoundError:
        return None
    except (OSError, Malformed) as error:
        raise UsageError(
            f"{place} cannot be read: {error}.",
            exists="Its runs and machines are not affected.",
            next_command="orch runs    # the same `orch sweep` command writes the file again",
        ) from error


def sweep_ids(project: Project) -> list[str]:
    """Return the ids of the sweeps, the most recently written one first."""
    places = [place for place in project.run(".").glob(f"*/{RECORD}") if place.is_file()]
    return [place.parent.name for place in sorted(places, key=lambda each: -each.stat().st_mtime)]


def named(project: Project, sweep: str | None) -> Sweep:
    """Return the sweep with this id, or the last one. Raises UsageError with the nearest ids."""
    ids = sweep_ids(project)
    found = read(project, sweep) if sweep else read(project, ids[0]) if ids else None
    if found is not None:
        return found
    near = get_close_matches(sweep or "", ids, n=3, cutoff=0.4) or ids[:3]
    said = f" There are: {', '.join(near)}." if near else ""
    which = f"no sweep {sweep}" if sweep else "no sweep"
    raise UsageError(
        f"This project has {which}.{said}",
        next_command=f"orch sweep PROFILE --matrix lr=1e-3,1e-4    # {PROFILE_IS}",
    )


def _table(sweep: Sweep) -> str:
    metrics, others = sweep.recorded, ("run", *sweep.matrix, *_FACTS)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    columns = [f"metric.{name}" if name in others else name for name in metrics]
    rows.writerow(["run", *sweep.matrix, "state", "reason", *columns, "seconds", "usd", "attempts"])
    for point in sweep.points:
        values: Sequence[object] = (
            point.run_id,
            *(point.params[name] for name in sweep.matrix),
            point.state,
            point.reason,
            *(point.metrics.get(name) for name in metrics),
            point.seconds,
            point.usd,
            point.attempts,
        )
        rows.writerow(["" if value is None else value for value in values])
    return text.getvalue()
