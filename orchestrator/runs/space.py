"""Check for free space here before anything is rented or sent, and explain errors of a full disk."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import LocalError, UsageError
from orchestrator.hosts.disk import FULL, amount, existing, free, mount_of, shown
from orchestrator.hosts.limits import SPARE
from orchestrator.model import RunRecord
from orchestrator.profile import Profile
from orchestrator.runs import collect, record_file
from orchestrator.session.project import Project

RECORDS = 1 << 20
"""Bytes that must be free at least: for ledger, record and trace."""

_LOOKED_AT = 50
"""Most records of earlier runs that are read, the newest first."""


@dataclass(frozen=True)
class Wanted:
    """Bytes that will be written below `place`, and what they are."""

    place: Path
    size: int
    what: str


def require_records(project: Project, exists: str, next_command: str) -> None:
    """Raise LocalError if there is no room for the ledger and for the list of what was sent."""
    _require([_records(project)], exists, next_command)


def require_results(project: Project, profile: Profile, exists: str, next_command: str) -> None:
    """Raise LocalError if there is no room for records and results: as many bytes as the last run of this
    command left.
    """
    _require([_records(project), *_results(project, profile)], exists, next_command)


def _records(project: Project) -> Wanted:
    kept = sum(path.stat().st_size for path in project.cache.glob("hashes-*.json"))
    return Wanted(project.state, RECORDS + kept, "of the ledger and of what was sent")


def _results(project: Project, profile: Profile) -> Iterator[Wanted]:
    """Yield the room for results. Fetching leaves `SPARE` bytes free. Without an earlier run, the size of
    results is unknown.
    """
    runs = project.run("x").parent
    yield Wanted(runs, SPARE, "that stay free while results are fetched")
    earlier = _last(runs, profile)
    if earlier is not None:
        log = earlier.folder / collect.LOG
        size = sum(each["bytes"] for each in earlier.artifacts)
        size += log.stat().st_size if log.exists() else 0
        yield Wanted(runs, size, f"of results, as {earlier.run_id} had")


def _last(runs: Path, profile: Profile) -> RunRecord | None:
    """Return the latest successful run of the same command; None if there is none."""
    written = sorted(runs.glob(f"*/{record_file.RECORD}"), key=_changed, reverse=True)
    for path in written[:_LOOKED_AT]:
        try:
            record = record_file.read(path.parent)
        except (OSError, UsageError):
            continue
        if record and record.succeeded and list(record.command or ()) == list(profile.train.command):
            return record
    return None


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _require(wanted: list[Wanted], exists: str, next_command: str) -> None:
    """Raise LocalError if a file system has too little room; the needs of one file system are added up."""
    by_device: dict[int, list[Wanted]] = {}
    for each in wanted:
        by_device.setdefault(existing(each.place).stat().st_dev, []).append(each)
    for together in by_device.values():
        place, needed = together[0].place, sum(each.size for each in together)
        if free(place) < needed:
            parts = ", ".join(f"{amount(each.size)} {each.what}" for each in together)
            raise LocalError(
                f"Too little space on this computer: {shown(place)}, {amount(needed)} are needed: {parts}.",
                exists=exists,
                next_command=f"{next_command}    # once there is room in {mount_of(place)}",
            )


# ---------------------------------------------------------------- met on the way


def refusal_of(error: OSError, project: Project) -> tuple[str, str]:
    """Return a clause on what was refused and where, and when to try again.

    If the error names no path, the file systems to which orch writes are checked.
    """
    if error.errno not in FULL:
        named = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{named}", "once that is fixed"
    given = [Path(os.fsdecode(error.filename))] if isinstance(error.filename, str | bytes) else []
    temporary = Path(tempfile.gettempdir())
    fullest = min([project.run("x").parent, project.state, temporary], key=free)
    path = given[0] if given else fullest
    file = f" ({path})" if given else ""
    return f"{error.strerror}{file}: {shown(path)}", f"once there is room in {mount_of(path)}"


@contextmanager
def naming_pull(folder: Path) -> Iterator[None]:
    """Add the command that continues to a LocalError of the block, which fetches a run into `folder`."""
    try:
        yield
    except LocalError as error:
        again = f"orch pull {shlex.quote(folder.name)}"
        error.next_command = (
            f"{again}    # once there is room in {mount_of(folder)}; downloaded files are kept"
        )
        raise
