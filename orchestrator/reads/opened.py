"""The files that an observed run opened, as its processes recorded them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import MalformedAnswer
from orchestrator.model.answers import Malformed, value
from orchestrator.model.files import regular_bytes
from orchestrator.parity.facts import ENVIRONMENT, MOST_BYTES, OpenedFile, read_opened_files

_MOST_LINES = 10_000


@dataclass(frozen=True)
class Opened:
    """Absolute paths, as the processes named them. `files`: path -> way ("python", "named" or
    "descriptor") of those that were opened for reading, without caches and files that the run made.
    `folders`: those that were listed. `made`: files that the run made. `modules`: those that were
    imported and belong to no package. `fetched`: path -> the folder of the data set or model that a
    library had fetched. `digests`: path -> SHA-256, of those that were hashed. `absolute`: paths that code
    names by their absolute path only.
    """

    files: dict[str, str]
    folders: tuple[str, ...]
    made: frozenset[str]
    modules: tuple[str, ...]
    fetched: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    absolute: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.files or self.folders or self.modules)


def _of_workers(observe: Path) -> Iterator[tuple[str, str]]:
    """Yield (path, way) of what workers of multiprocessing opened. Invalid lines are skipped, because a
    worker that is killed can leave a torn one. Raises MalformedAnswer.
    """
    for file in sorted(observe.glob("opened-*.jsonl")):
        try:
            text = regular_bytes(file, MOST_BYTES).decode("utf-8", "replace")
        except Malformed as error:
            raise _refused(file, f"{file.name}: {error}") from None
        for line in text.splitlines()[:_MOST_LINES]:
            try:
                entry = value(OpenedFile, json.loads(line))
                yield entry["path"], entry.get("way") or "python"
            except (ValueError, RecursionError):
                continue


def read_opened(observe: Path) -> Opened:
    """Read the `observe` folder of a run; empty if it has none. Raises MalformedAnswer."""
    own = [_read(path) for path in sorted(observe.glob("opened-*.json"))]
    known = [*own, _read(observe / ENVIRONMENT)]
    entries = [e for each in known for e in (each.get("files") or {}).get("list") or []]
    written = (path for each in own for path in (each.get("files") or {}).get("written") or [])
    made = frozenset((*written, *(entry["path"] for entry in entries if entry.get("made"))))
    files: dict[str, str] = {}
    for entry in entries:
        if entry["path"] not in made and not entry.get("cache"):
            files.setdefault(entry["path"], entry.get("way") or "python")
    folders = [path for each in known for path in (each.get("files") or {}).get("folders") or []]
    for path, way in _of_workers(observe):
        if way == "listed":
            folders.append(path)
        elif path not in made:
            files.setdefault(path, way)
    modules = (str(path) for each in own for path in each.get("modules") or [])
    fetched = {entry["path"]: entry["fetched"] for entry in entries if entry.get("fetched")}
    digests = {entry["path"]: entry["sha256"] for entry in entries if entry.get("sha256")}
    return Opened(files, tuple(dict.fromkeys(folders)), made, tuple(dict.fromkeys(modules)), fetched, digests)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_opened_files(path)
    except Malformed as error:
        raise _refused(path, str(error)) from None


def _refused(path: Path, why: str) -> MalformedAnswer:
    return MalformedAnswer(
        f"The list of files that the run opened cannot be read: {why}. It was not used.",
        exists=f"Everything else of the run is in {path.parent.parent}.",
        next_command=f"rm -r {shlex.quote(str(path.parent))}    # discards the list; then try again",
    )
