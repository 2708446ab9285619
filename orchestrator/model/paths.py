"""Paths that people, programs and other computers write down: any text may come, and none raises."""

from __future__ import annotations

from pathlib import Path


def is_there(path: Path) -> bool:
    """Whether a path exists; one that cannot be asked for, like one that is too long, does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether a path leads to a folder."""
    return is_there(path) and path.is_dir()


def with_home(path: Path) -> Path:
    """The path with `~` or `~name` replaced by that home folder; as it is where nobody has that name."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path
