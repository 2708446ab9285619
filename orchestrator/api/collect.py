"""From a run that ended on a machine to `runs/<id>/` here: verified files, checks, one record."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator import jobs, sync
from orchestrator.errors import HostError
from orchestrator.model import Agent, Entry, Exit, Host, RunRecord, RunState

RECORD = "run.json"
OUTPUTS = "outputs"
LOG = "output.log"
_METRICS_BYTES = 1 << 20


def fetch(host: Host, agent: Agent, run_id: str, folder: Path, progress: Any) -> tuple[Entry, ...]:
    """Bring a run's files into `folder`: verified, then renamed. Safe to repeat, safe to interrupt."""
    source = jobs.run_dir(agent, run_id)
    folder.mkdir(parents=True, exist_ok=True)
    entries = jobs.outputs(host, agent, run_id)
    sync.pull(host, agent, f"{source}/work", entries, folder / OUTPUTS, progress=progress)
    there = jobs.state(host, agent, run_id)
    for name in (LOG, "trace.jsonl", "exit.json"):
        try:
            host.get(f"{source}/{name}", folder / name)
        except HostError:
            if not _may_lack(name, there):
                raise
    return entries


def _may_lack(name: str, state: RunState) -> bool:
    """A run that was killed early has no trace; one whose supervisor was killed was never told its end."""
    return name == "trace.jsonl" or (name == "exit.json" and state.state == "lost")


def artifacts(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {"path": f"{OUTPUTS}/{entry.path}", "sha256": entry.digest, "bytes": entry.size}
        for entry in entries
        if entry.kind == "file"
    ]


def metrics(folder: Path, entries: Sequence[Entry]) -> dict[str, Any]:
    """The numbers of the run's own metrics files (`metrics.json`, `eval_metrics.json`, ...), merged."""
    found: dict[str, Any] = {}
    for entry in entries:
        name = Path(entry.path).name
        if entry.kind == "file" and name.endswith("metrics.json") and entry.size <= _METRICS_BYTES:
            found.update(_numbers(folder / OUTPUTS / entry.path))
    return found


def _numbers(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (ValueError, OSError):
        return {}
    return {k: v for k, v in value.items() if isinstance(v, int | float)} if isinstance(value, dict) else {}


def exit_json(exit_: Exit | None) -> dict[str, Any]:
    if exit_ is None:
        return {"code": None, "signal": None, "reason": "lost", "detail": "The machine went away."}
    return asdict(exit_)


def write(record: RunRecord) -> None:
    """`run.json`, whole or not at all: its presence says that the folder is complete."""
    record.folder.mkdir(parents=True, exist_ok=True)
    part = record.folder / f"{RECORD}.part"
    with open(part, "w") as handle:
        json.dump(record.as_json(), handle, indent=1)
        handle.flush()
        os.fsync(handle.fileno())
    part.rename(record.folder / RECORD)


def read(folder: Path) -> RunRecord | None:
    path = folder / RECORD
    return RunRecord.from_json(json.loads(path.read_text()), folder) if path.exists() else None
