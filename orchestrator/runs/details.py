"""What a run's folder has beyond its record: the run over time, over epochs, and each step of its parity
check.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.model import RunRecord
from orchestrator.model.files import last_bytes
from orchestrator.model.plain import plain
from orchestrator.parity.recording import read
from orchestrator.parity.rungs import Rung, rungs
from orchestrator.profiling.timeline import Timeline, timeline
from orchestrator.runs.collect import LOG
from orchestrator.runs.curves import Curve, curves_of
from orchestrator.sizing.rightsize import TRACE

_TAIL = 12_000
"""Bytes of the end of its output."""


@dataclass(frozen=True)
class RunDetails:
    """A record with what its files contain. `rungs`: of its parity check. `tail`: the end of its output.

    `recorded_at`: when its record was written, Unix seconds; None if there is none.
    """

    record: RunRecord
    timeline: Timeline | None = None
    curves: tuple[Curve, ...] = ()
    rungs: tuple[Rung, ...] = ()
    tail: str = ""
    recorded_at: float | None = None


def read_details(record: RunRecord) -> RunDetails:
    """Read the files of a run that are on this computer. What is missing or damaged is left out."""
    folder = record.folder
    recorded_at = None
    with suppress(OSError):
        recorded_at = (folder / "run.json").stat().st_mtime
    return RunDetails(
        record,
        _timeline(folder, record),
        curves_of(folder, record.artifacts, folder / LOG),
        _rungs(folder / "parity" / "here", folder / "parity" / "there"),
        plain(last_bytes(folder / LOG, _TAIL).decode("utf-8", "replace")),
        recorded_at,
    )


def between(a: Path, b: Path) -> tuple[Rung, ...]:
    """Return the rungs of two recordings, each given by the folder that holds `observe/`."""
    return _rungs(a, b)


def _timeline(folder: Path, record: RunRecord) -> Timeline | None:
    memory = ((record.machine or {}).get("detail") or {}).get("memory")
    stated = memory if isinstance(memory, int) and not isinstance(memory, bool) and memory > 0 else None
    return timeline(folder / TRACE, stated)


def _rungs(a: Path, b: Path) -> tuple[Rung, ...]:
    if not (a / "observe").is_dir() or not (b / "observe").is_dir():
        return ()
    with suppress(OSError, ValueError):
        return rungs(read(a), read(b))
    return ()
