"""Download a run that ended on a machine to `runs/<id>/`: verified files, checks, one record."""

from __future__ import annotations

import json
import os
import posixpath
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator import jobs, sync
from orchestrator.errors import FileRefused, HostError
from orchestrator.model import (
    Agent,
    Artifact,
    DataFacts,
    Entry,
    Exit,
    Exited,
    Host,
    NotFetched,
    NotWritten,
    Progress,
    Refused,
    RunRecord,
    RunState,
    Unfetched,
)
from orchestrator.model.answers import Malformed
from orchestrator.model.files import open_regular, regular_bytes
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.plain import plain
from orchestrator.runs import events, logs
from orchestrator.runs.curves import last_values
from orchestrator.runs.record_file import disk_errors
from orchestrator.runs.results_size import naming_total_size

OUTPUTS = "outputs"
LOG = logs.LOG
_BLOCK = 1 << 20
_MOST_COPIED = 1 << 32
_METRICS_BYTES = 1 << 20
_METRICS = 1000
"""Most bytes of a metrics file, and most metrics that are read from it."""
_LONGEST_KEY = 300
_LARGEST = 1e308


@dataclass(frozen=True)
class Fetched:
    """`entries`: files that are here, verified; `refused`: files that stayed on the machine.

    `altered`: data files that were written on the machine during the run. `unwritten`: outputs that the
    profile names and the run did not write. `transferred`: how many outputs came now; the others were here.
    """

    entries: tuple[Entry, ...]
    refused: tuple[NotFetched, ...] = ()
    altered: tuple[str, ...] = ()
    mounts: tuple[jobs.Mount, ...] = ()
    watched: bool = True
    unwritten: tuple[jobs.Unwritten, ...] = ()
    transferred: int = 0


def fetch(
    host: Host, agent: Agent, run_id: str, folder: Path, progress: Progress, *, again: bool = False
) -> Fetched:
    """Download a run's files into `folder`: its log, end and trace first; verified, then renamed.

    With `again`, the outputs are listed again on the machine. Safe to repeat and to interrupt. Raises
    LocalError if this computer cannot store them, and keeps the existing files.
    """
    source = jobs.run_dir(agent, run_id)
    with naming_total_size(host, agent, run_id, folder / OUTPUTS), disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lacking = _fetch_story(host, agent, run_id, folder)
    left = jobs.left(host, agent, run_id, again=again)
    outputs = folder / OUTPUTS
    pulled = sync.pull_possible(
        host, agent, f"{source}/work", left.entries, outputs, progress=progress, as_read=again
    )
    events.forget(folder, outputs)
    refused = (*lacking, *pulled.refused)
    return Fetched(
        pulled.entries,
        refused,
        left.altered,
        left.mounts,
        left.watched,
        left.unwritten,
        pulled.fetched_files,
    )


def _fetch_story(host: Host, agent: Agent, run_id: str, folder: Path) -> list[NotFetched]:
    """Fetch its log, end and samples; a file that cannot be fetched does not stop the others. Return
    those files.
    """
    lacking = []
    for name in (LOG, "exit.json", "trace.jsonl"):
        try:
            there = f"{jobs.run_dir(agent, run_id)}/{name}"
            if name == LOG:
                _fetch_longer(host, there, folder / name)
            else:
                host.get(there, folder / name)
        except HostError as error:
            # if the connection is lost, this question fails too and raises
            if not _may_lack(name, jobs.state(host, agent, run_id)):
                lacking.append(NotFetched(name, "file", Refused.UNREADABLE, error.message))
    return lacking


def _fetch_longer(host: Host, source: str, target: Path) -> None:
    """Download the log of a run. Raises FileRefused, and keeps the local log, if it became shorter there."""
    fresh = target.with_name(f".{target.name}.fetched")
    try:
        host.get(source, fresh)
        came, here = fresh.stat().st_size, logs.own_size(target.parent)
        if came < here:
            raise FileRefused(
                f"it became shorter on the machine: {came:,} bytes are left there, {here:,} are here"
            )
        logs.put_own(target.parent, fresh)
    finally:
        fresh.unlink(missing_ok=True)


def copy_file(source: Path | str, target: Path | str) -> None:
    """Copy a regular file of a run on this computer, at most 4 GiB; other kinds of files are refused."""
    with suppress(FileNotFoundError, Malformed), open_regular(Path(source)) as file:
        facts, left = os.fstat(file.fileno()), _MOST_COPIED
        Path(target).unlink(missing_ok=True)
        with open(target, "xb") as copy:
            while left > 0 and (block := file.read(min(left, _BLOCK))):
                copy.write(block)
                left -= len(block)
        os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def copy_folder(source: Path, target: Path) -> None:
    """Copy the regular files of a run's folder on this computer; links stay links.

    An earlier copy is replaced. Nothing is written through a link in its place.
    """
    if source.is_dir() and not source.is_symlink():
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        shutil.copytree(source, target, symlinks=True, copy_function=copy_file)


def _may_lack(name: str, state: RunState) -> bool:
    """Return whether a file may be missing: a run that was killed early has no trace, and one whose
    supervisor was killed has no end.
    """
    return name == "trace.jsonl" or (name == "exit.json" and state.state == "lost")


def not_fetched(fetched: Fetched, *, declared: bool) -> list[Unfetched]:
    """Return the files that stayed on the machine. `declared`: the profile names the outputs."""
    return [
        {
            "path": each.path,
            "kind": each.kind,
            "reason": str(each.reason),
            "detail": each.detail,
            "declared": declared,
        }
        for each in fetched.refused
    ]


def unwritten(fetched: Fetched, there: str) -> list[NotWritten]:
    """Return the declared outputs that the run did not write. `there`: the run's working folder."""
    return [
        {
            "pattern": plain(each.pattern),
            "looked_for": plain(posixpath.join(there, each.pattern)),
            "nearest": plain(each.nearest) if each.nearest else None,
            "no_other": each.no_other,
        }
        for each in fetched.unwritten
    ]


class _Checked(Protocol):
    """The answers of jobs.Left: evidence that a run may have read other data than it was sent."""

    @property
    def altered(self) -> Sequence[str]: ...
    @property
    def mounts(self) -> Sequence[jobs.Mount]: ...
    @property
    def watched(self) -> bool: ...


def data_read(sent: DataFacts | None, left: _Checked | None) -> DataFacts | None:
    """Return the facts of the data of a run that ended; `left`: None if they can no longer be read from
    its machine.
    """
    if not sent or not sent.get("files"):
        return sent
    found: DataFacts = {}
    if left and left.altered:
        found["altered"] = [plain(each) for each in left.altered]
    if left and left.mounts:
        found["mounts"] = [
            {"program": plain(each.program), "call": plain(each.call), "target": plain(each.target)}
            for each in left.mounts
        ]
    if left is None or not left.watched:
        found["checked"] = False
    return {**sent, **found}


def artifacts(entries: Sequence[Entry]) -> list[Artifact]:
    return [
        {"path": f"{OUTPUTS}/{entry.path}", "sha256": entry.digest, "bytes": entry.size}
        for entry in entries
        if entry.kind == "file"
    ]


def metrics(record: RunRecord) -> dict[str, float]:
    """Return the numbers in the run's metrics files (`metrics.json`, `eval_metrics.json`, ...), merged; if it
    left none, the last ones in a file of metrics over time, such as a CSV of Keras' CSVLogger, or those that
    it printed as a JSON object in its last line.
    """
    found: dict[str, float] = {}
    for artifact in record.artifacts:
        if artifact["path"].endswith("metrics.json") and artifact["bytes"] <= _METRICS_BYTES:
            found.update(_numbers(record.folder / artifact["path"]))
    last = found or last_values(record.folder, record.artifacts, record.folder / LOG)
    return dict(list(last.items())[:_METRICS])


def _numbers(path: Path) -> dict[str, float]:
    try:
        found = json.loads(regular_bytes(path, _METRICS_BYTES))
    except (ValueError, OSError, RecursionError):  # ValueError includes malformed JSON
        return {}
    numbers = (
        [(key, each) for key, each in found.items() if _is_metric(key, each)]
        if isinstance(found, dict)
        else []
    )
    return dict(numbers[:_METRICS])


def _is_metric(key: str, value: object) -> bool:
    """Return whether it is a finite number with a name that a record can hold. A diverged training may write
    NaN.
    """
    huge = isinstance(value, int) and abs(value) > _LARGEST
    return isinstance(value, int | float) and not huge and len(key) <= _LONGEST_KEY


def exit_json(exit_: Exit | None) -> Exited:
    ended = exit_ or Exit(None, None, ExitReason.LOST, "The machine went away.")
    return {
        "code": ended.code,
        "signal": ended.signal,
        "reason": ended.reason,
        "detail": ended.detail,
        "retry": ended.reason.worth_repeating,
        "noticed": [
            {"what": each.what, "at": each.at, "step": each.step, "detail": plain(each.detail)}
            for each in ended.noticed
        ],
    }
