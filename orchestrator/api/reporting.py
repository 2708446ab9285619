"""report: a run, two of them, a sweep, or a lease, as one page that needs no other files."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import orchestrator
from orchestrator.api.comparing import by_records, compare, observed
from orchestrator.errors import OrchError, UsageError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.leases.settle import record_of
from orchestrator.model import Exited, RunRecord
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.sweeps import Sweep
from orchestrator.parity.rungs import Rung
from orchestrator.report.page import (
    Page,
    html_of,
    markdown_of,
    page_of,
    page_of_lease,
    page_of_sweep,
    page_of_two,
    params_of,
)
from orchestrator.report.page.two import Comparison
from orchestrator.runs import record_file
from orchestrator.runs.curves import Curve
from orchestrator.runs.details import RunDetails, between, read_details
from orchestrator.runs.find_run import known_ids, no_such_run
from orchestrator.runs.history import history
from orchestrator.runs.outputs import compare_results
from orchestrator.session.project import SWEEP_RECORD, Project

NAME = "report"
_CURVES = 4


class Format(StrEnum):
    """How a report is written."""

    HTML = "html"
    MARKDOWN = "md"
    JSON = "json"


@dataclass(frozen=True)
class Report:
    """A page, as data and as `text` in a format. `path`: the file that was written; None if none was."""

    page: Page
    text: str
    path: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """Its path, runs and verdict."""
        return {
            "path": str(self.path) if self.path else None,
            "runs": list(self.page.runs),
            "verdict": asdict(self.page.headline),
        }


def report(
    run: str | Path | None = None,
    other: str | Path | None = None,
    *,
    format: str = Format.HTML,
    folder: Path | str | None = None,
) -> Report:
    """Make the report of a run, of two side by side, of a sweep, or of a lease; without `run`, of the newest
    run.

    A run is an id under `runs/`, or a folder with a run.json; a sweep or a lease is its id. HTML is written
    beside run.json, sweep.json or the lease's ledger; Markdown and JSON are only returned. Asks no machine
    and no cloud: an active run is shown as it is known on this computer.
    """
    form = _form(format)
    project = Project.at(folder)
    if run is not None and other is None and (swept := _sweep(project, str(run))):
        return _written(swept, form, project.run(str(run)) / f"{NAME}.html")
    if run is not None and other is None and (leased := _lease(project, str(run))):
        return _written(leased, form, project.state / str(run) / f"{NAME}.html")
    first = _details(project, str(run) if run is not None else _newest(project))
    if other is None:
        page = page_of(first, version=orchestrator.__version__, now=time.time())
        return _written(page, form, first.record.folder / f"{NAME}.html")
    second = _details(project, str(other))
    page = page_of_two(
        first, second, _compared(project, first, second), version=orchestrator.__version__, now=time.time()
    )
    return _written(page, form, first.record.folder / f"{NAME}-{second.record.folder.name}.html")


def _form(wanted: str) -> Format:
    with suppress(ValueError):
        return Format(wanted)
    raise UsageError(f"There is no format {wanted!r}; there are: {', '.join(Format)}.")


def _written(page: Page, form: Format, place: Path) -> Report:
    if form == Format.MARKDOWN:
        return Report(page, markdown_of(page))
    if form == Format.JSON:
        return Report(page, json.dumps({"schema": "orch.report/1", **page.as_json()}, indent=1))
    text = html_of(page)
    atomic_write(place, text.encode("utf-8", "replace"))
    return Report(page, text, place)


# ---------------------------------------------------------------- a sweep, a lease


def _lease(project: Project, name: str) -> Page | None:
    """Return the page of a lease, open or closed; None if there is none of that id, or a run has it."""
    if (project.run(name) / record_file.RECORD).is_file():
        return None
    for ledger in project.ledgers():
        if ledger.path.parent.name == name:
            known = ledger.contents()
            return page_of_lease(ledger.lease_in(known), known.events, version=orchestrator.__version__)
    return None


def _sweep(project: Project, name: str) -> Page | None:
    """Return the page of a sweep; None if there is none of that id."""
    if not (project.run(name) / SWEEP_RECORD).is_file():
        return None
    from orchestrator.sweep.status import status_of

    swept, _ = status_of(project, name)
    return page_of_sweep(
        swept, _best_curves(project, swept), version=orchestrator.__version__, now=time.time()
    )


def _best_curves(project: Project, swept: Sweep) -> list[tuple[str, Sequence[Curve]]]:
    """Return the curves of the best runs, by their parameters."""
    left = swept
    found: list[tuple[str, Sequence[Curve]]] = []
    while (best := left.best) is not None and len(found) < _CURVES:
        record = record_file.read(project.run(best.run_id))
        if record is not None:
            found.append((params_of(best), read_details(record).curves))
        left = replace(left, points=tuple(each for each in left.points if each.run_id != best.run_id))
    return found


# ---------------------------------------------------------------- which run


def _newest(project: Project) -> str:
    known = history(last=1, folder=project.root).runs
    if known:
        return known[0].run_id
    raise UsageError(f"There is no run in {project.root}.", next_command=project.first_run_command)


def _details(project: Project, run: str) -> RunDetails:
    """Read a run from its folder, from its record here, or from a ledger. Raises UsageError if none of these
    exists.
    """
    folders = [path for path in (Path(run), project.run(run)) if (path / record_file.RECORD).is_file()]
    if folders:
        return read_details(_record(folders[0].resolve()))
    leased = next((each for each in reversed(project.leases()) if run in each.runs), None)
    if leased is None:
        raise no_such_run(f"There is no run {run} in {project.root}.", run, known_ids(project))
    known = leased.runs[run]
    return read_details(
        record_of(project, leased, run, known.draft, exit=_so_far(run, known.exit_reason, known.gone))
    )


def _record(folder: Path) -> RunRecord:
    """Return the record in a folder; if it is damaged, one that says so, so that the rest of the run is
    shown.
    """
    try:
        found = record_file.read(folder)
    except UsageError as error:
        return RunRecord(folder.name, str(folder), {"reason": "unreadable", "detail": error.message})
    assert found is not None
    return found


def _so_far(run: str, reason: str | None, lost: str | None) -> Exited:
    """Return the end of a run whose results are not on this computer."""
    if lost is not None:
        return {"reason": ExitReason.LOST, "detail": lost}
    if reason is not None:
        return {"reason": reason, "detail": f"Its results are on the machine: orch pull {run}"}
    return {"reason": ExitReason.RUNNING, "detail": f"orch logs -f {run}"}


# ---------------------------------------------------------------- two runs


def _compared(project: Project, a: RunDetails, b: RunDetails) -> Comparison:
    places = (a.record.folder, b.record.folder)
    rungs: tuple[Rung, ...] = ()
    try:
        verdict = compare(*places, folder=project.root)
        if not verdict.recorded:
            rungs = between(*(observed(project, place) for place in places))
    except OrchError:
        verdict, rungs = by_records(a.record, b.record), ()
    return Comparison(verdict.as_json(), rungs, compare_results(a.record, b.record, verdict))
