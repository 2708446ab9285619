"""What an observed run opened, as its processes wrote it down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.parity.recording import read_object


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
    folders = (str(f) for value in known for f in (value.get("files") or {}).get("folders") or [])
    modules = (str(path) for value in values for path in value.get("modules") or [])
    return Opened(files, tuple(dict.fromkeys(folders)), made, tuple(dict.fromkeys(modules)))
