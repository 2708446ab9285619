"""Find where a script saves the state from which it can resume."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from orchestrator.lint.module import Module
from orchestrator.lint.source import snippets
from orchestrator.lint.values import UNKNOWN, argument, texts

BACKUP = "keras.callbacks.BackupAndRestore"
KEEP = "keras.callbacks.ModelCheckpoint"
MANAGER = "tensorflow.train.CheckpointManager"
_PLACES = {BACKUP: (0, "backup_dir"), KEEP: (0, "filepath"), MANAGER: (1, "directory")}


def saved_to(module: Module) -> Iterator[tuple[str, ast.Call, ast.expr]]:
    """Yield (saver, call, path) of each call that gets a path at which checkpoints are saved."""
    for call in module.calls:
        name = module.called(call)
        position, keyword = _PLACES.get(name, (-1, ""))
        path = argument(call, position, keyword) if keyword else None
        if path is not None:
            yield name, call, path


def checkpoint_folders(code: str) -> tuple[str, ...]:
    """Return the folders below the working folder from which a Python script resumes, if their names are
    literals.
    """
    found: dict[str, None] = {}
    for snippet in snippets("script.py", code):
        module = Module(snippet)
        for name, _, path in saved_to(module):
            known = texts(module, path) if name != KEEP else []
            found |= dict.fromkeys(text for text in map(_below, known) if text)
    return tuple(found)


def _below(text: str) -> str:
    """Return the folder relative to the working folder; "" if it is outside or unknown."""
    path = PurePosixPath(text)
    known = UNKNOWN not in text and not path.is_absolute() and ".." not in path.parts
    return str(path) if known and path.parts and not text.startswith("~") else ""
