"""What an observed run opened, as its processes wrote it down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.parity.recording import read_object

_MOST_LINES = 10_000


@dataclass(frozen=True)
class Opened:
    """Absolute paths, as the processes named them. `files`: path -> way ("python", "named" or "descriptor")
    of those that were opened for reading, less what the run made and caches; `folders` that were listed;
    `made` files; `modules` that were imported and belong to no package."""

    files: dict[str, str]
    folders: tuple[str, ...]
    made: frozenset[str]
    modules: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.files or self.folders or self.modules)


def _of_workers(observe: Path) -> Iterator[tuple[str, str]]:
    """(path, way) of what workers of multiprocessing opened; lines that are none are passed over."""
    for file in sorted(observe.glob("opened-*.jsonl")):
        for line in file.read_text("utf-8", errors="replace").splitlines()[:_MOST_LINES]:
            try:
                value = json.loads(line)
                yield str(value["path"]), str(value["way"])
            except (ValueError, TypeError, KeyError, RecursionError):
                continue


def read_opened(observe: Path) -> Opened:
    """What lies in the `observe` folder of a run; empty where nothing does."""
    values = [read_object(path) for path in sorted(observe.glob("opened-*.json"))]
    known = [*values, read_object(observe / "environment.json")]
    entries = [e for value in known for e in (value.get("files") or {}).get("list") or []]
    written = (str(path) for value in values for path in value["files"].get("written") or [])
    made = frozenset((*written, *(str(entry["path"]) for entry in entries if entry.get("made"))))
    files: dict[str, str] = {}
    for entry in entries:
        if str(entry["path"]) not in made and not entry.get("cache"):
            files.setdefault(str(entry["path"]), str(entry["way"]))
    folders = [str(f) for value in known for f in (value.get("files") or {}).get("folders") or []]
    for path, way in _of_workers(observe):
        if way == "listed":
            folders.append(path)
        elif path not in made:
            files.setdefault(path, way)
    modules = (str(path) for value in values for path in value.get("modules") or [])
    return Opened(files, tuple(dict.fromkeys(folders)), made, tuple(dict.fromkeys(modules)))
