"""The attempts at a run id that were set aside, in `runs/<id>/attempts/<n>/`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.model import RunRecord
from orchestrator.runs import record_file

FOLDER = "attempts"


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the attempts that were set aside in a run's folder, in order."""
    return sorted(int(path.name) for path in (folder / FOLDER).glob("*") if path.name.isdigit())


def records(folder: Path) -> list[tuple[int, RunRecord]]:
    """Return each number with its record, oldest first. An unreadable record is skipped, and stays where
    it is.
    """
    found = []
    for number in numbers(folder):
        with suppress(UsageError):
            record = record_file.read(folder / FOLDER / str(number))
            if record is not None:
                found.append((number, record))
    return found
