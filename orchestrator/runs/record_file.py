"""Write and read `run.json`, the record of a run in its folder on this computer."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

from orchestrator.errors import LocalError, UsageError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.hosts.disk import mount_of, shown
from orchestrator.model import (
    RUN_SCHEMA,
    Artifact,
    CodeFacts,
    Exited,
    NodeFacts,
    NotWritten,
    RequestFacts,
    RunRecord,
    Unfetched,
)
from orchestrator.model.answers import LONG, Between, Most, value
from orchestrator.model.files import regular_bytes

RECORD = "run.json"

Facts = Mapping[str, Any]


class _Needed(TypedDict):
    run_id: str
    exit: Exited


class Written(_Needed, total=False):
    """The shape of run.json. Each part is written by its own module, such as `parity` or `stack`."""

    command: Annotated[list[Annotated[str, Most(1 << 17)]], Most(100_000)] | None
    code: CodeFacts | None
    request: RequestFacts | None
    parity: Facts | None
    resume_proof: Facts | None
    stack: Facts | None
    data: Facts | None
    metrics: Annotated[Facts, Most(1_000_000)]
    profile: Facts | None
    artifacts: Annotated[list[Artifact], Most(1_000_000)]
    not_fetched: Annotated[list[Unfetched], Most(1_000_000)]
    unwritten: Annotated[list[NotWritten], Most(1000)]
    model_check: Facts | None
    acceptance: Facts | None
    machine: Facts | None
    cost: Facts | None
    timings: Mapping[str, float | None]
    attempts: list[Facts]
    nodes: Annotated[list[NodeFacts], Most(1000)]
    rank: Annotated[int, Between(0, 1000)]


def write(record: RunRecord) -> None:
    """Write `run.json` atomically; its presence says that the folder is complete. Raises LocalError."""
    with disk_errors(record.folder):
        atomic_write(record.folder / RECORD, json.dumps(record.as_json(), indent=1).encode())


def read(folder: Path) -> RunRecord | None:
    """Return the record in `folder`; None if there is none. Raise UsageError if the file is not a valid
    record.
    """
    path = folder / RECORD
    if not path.exists():
        return None
    try:
        found = json.loads(regular_bytes(path, LONG))
        _require_version(path, found)
        value(Written, found)
        return RunRecord.from_json(found, folder)
    except UsageError:
        raise
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise _unreadable(path) from error


def _require_version(path: Path, found: Any) -> None:
    """Raise UsageError if a later version wrote the record."""
    written = found.get("schema") if isinstance(found, dict) else None
    name, _, number = written.partition("/") if isinstance(written, str) else ("", "", "")
    ours = int(RUN_SCHEMA.partition("/")[2])
    if name == "orch.run" and number.isdecimal() and int(number) > ours:
        raise UsageError(
            f"{path} has version {int(number)} of the record; this orch reads version {ours}.",
            exists=f"The files in {path.parent} are unchanged.",
            next_command="pip install --upgrade orch-train",
        )


def _unreadable(path: Path) -> UsageError:
    folder = path.parent
    aside = shlex.join(["mv", str(folder), f"{folder}.damaged"])
    return UsageError(
        f"{path} is damaged: it is not the record of a run.",
        exists=f"The other files in {folder} are unchanged.",
        next_command=f"orch pull {folder.name}    # while its machine exists; else: {aside}",
    )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn errors of this computer's disk into LocalError."""
    try:
        yield
    except OSError as error:
        raise LocalError(
            f"{folder} cannot store the run's files: {error.strerror or error}: {shown(folder)}. "
            "Existing files are unchanged.",
            exists="The run's results are still on its machine.",
            next_command=f"orch pull {folder.name}    # once there is room in {mount_of(folder)}",
        ) from error
