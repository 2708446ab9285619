"""A scratch folder for a run that is only measured: code and models are copied, everything else is linked.

Data are read from their original place, on the disk that is to be measured. What the run writes stays in the
scratch folder: before a link is written, the runtime's guard replaces it by a copy of the file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CODE = frozenset((".py", ".pyi", ".toml", ".yaml", ".yml", ".json", ".cfg", ".ini", ".txt", ".sh", ".md"))
CODE_BYTES = 1 << 20
MODELS = frozenset((".keras", ".h5", ".hdf5", ".tflite", ".pb", ".pkl", ".joblib"))
MODEL_BYTES = 256 << 20
"""Maximum bytes of a model that is copied. Models are copied because this run overwrites those of earlier
runs, and libraries write through links.
"""

MANY = 5000
"""A folder with more entries is linked as a whole."""

_LEFT_OUT = frozenset((".git", ".hg", ".svn", ".orch", "__pycache__", ".mypy_cache", ".ruff_cache"))
_WHOLE = frozenset(("runs", "node_modules", "site-packages"))


@dataclass(frozen=True)
class Scratch:
    """`original`, and `copy`, which the run may change; both are the same folder for a run in place."""

    original: Path
    copy: Path

    def at(self, path: Path) -> Path:
        """Return the path in the copy for a path of the original; other paths are returned unchanged."""
        return self.copy / path.relative_to(self.original) if path.is_relative_to(self.original) else path

    def back(self, path: Path) -> Path:
        """Return the path in the original for a path in the copy."""
        return self.original / path.relative_to(self.copy) if path.is_relative_to(self.copy) else path

    def argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return a command line with absolute paths into the original replaced by paths into the copy."""
        return tuple(str(self.at(Path(word))) if word.startswith("/") else word for word in argv)

    def plan(self, free: str, refusals: str) -> dict[str, Any]:
        """Return the interventions by which the copy appears as the original, and the original stays
        unchanged.
        """
        if self.copy == self.original:
            return {}
        return {
            "mirror": [[str(self.copy), str(self.original)]],
            "guard": {"kept": [str(self.original)], "free": [free, str(self.copy)], "refusals": refusals},
        }


def copy_project(original: Path, copy: Path) -> Scratch:
    """Create the scratch copy. Raises OSError."""
    _fill(original, copy)
    return Scratch(original, copy)


def _fill(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    with os.scandir(source) as found:
        entries = [entry for entry in found if entry.name not in _LEFT_OUT]
    for entry in entries:
        path, place = Path(entry.path), target / entry.name
        if entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
            place.symlink_to(path.resolve())
        elif entry.is_dir():
            _fill_or_link(path, place)
        elif _is_copied(path.suffix, entry.stat().st_size):
            shutil.copy2(path, place)
        else:
            place.symlink_to(path)


def _is_copied(suffix: str, size: int) -> bool:
    return (suffix in CODE and size <= CODE_BYTES) or (suffix in MODELS and size <= MODEL_BYTES)


def _fill_or_link(source: Path, target: Path) -> None:
    whole = source.name in _WHOLE or (source / "pyvenv.cfg").exists()
    if whole or sum(1 for _ in os.scandir(source)) > MANY:
        target.symlink_to(source)
    else:
        _fill(source, target)
