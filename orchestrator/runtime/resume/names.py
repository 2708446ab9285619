"""Which files of a job are checkpoints: those that `--checkpoints` names, else those with a typical name."""

# Paths are compared as text: this runs within every step of a training.
# ruff: noqa: PTH116, PTH118

from __future__ import annotations

import os
import re
from typing import Dict, Iterator, Sequence, Tuple

MOST = 5000
"""Maximum number of files that are examined in a folder."""

_SUFFIXES = (
    ".keras", ".h5", ".hdf5", ".npz", ".npy", ".pkl", ".pickle", ".joblib", ".ckpt", ".pt", ".pth",
    ".index", ".msgpack", ".safetensors",
)  # fmt: skip
_CALLED = re.compile(r"ckpt|checkpoint|backup|snapshot|resume|state", re.IGNORECASE)
_NEVER = re.compile(r"\.(py|pyc|log|csv|md|ya?ml)$|events\.out\.")
_SKIPPED = frozenset((".git", "__pycache__", "node_modules", ".venv", "venv"))

State = Tuple[int, int, int]
"""Size, time of change and inode of one file."""


def is_checkpoint(name: str, folders: Sequence[str]) -> bool:
    """Whether a file, by its path below the working folder, belongs to a checkpoint."""
    if folders:
        return any(name == folder or name.startswith(folder + os.sep) for folder in folders)
    return not _NEVER.search(name) and (name.endswith(_SUFFIXES) or bool(_CALLED.search(name)))


def cycle_of(name: str) -> str:
    """Return one name for the files that a job writes in turn: `ckpt-3.npz` and `ckpt-4.npz` are
    `ckpt-#.npz`.
    """
    return re.sub(r"\d+", "#", name)


def files_of(root: str, folders: Sequence[str]) -> Dict[str, State]:
    """Return the checkpoint files below `root`, as they are now."""
    return dict(_found(root, folders))


def _found(root: str, folders: Sequence[str]) -> Iterator[Tuple[str, State]]:
    looked = 0
    for folder, inside, names in os.walk(root):
        inside[:] = [name for name in inside if name not in _SKIPPED]
        for name in names:
            looked += 1
            if looked > MOST:
                return
            path = os.path.join(folder, name)
            short = os.path.relpath(path, root)
            if is_checkpoint(short, folders):
                try:
                    seen = os.stat(path, follow_symlinks=False)
                except OSError:
                    continue
                yield short, (seen.st_size, seen.st_mtime_ns, seen.st_ino)
