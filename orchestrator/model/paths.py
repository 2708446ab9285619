"""Questions about paths that people, programs and other computers wrote: every text is accepted, and no
function raises.
"""

from __future__ import annotations

from pathlib import Path


def is_there(path: Path) -> bool:
    """Return whether a path exists; False if the system refuses to look it up, as when it is too long."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Return whether a path leads to a folder."""
    return is_there(path) and path.is_dir()


def with_home(path: Path) -> Path:
    """Return the path with `~` or `~name` replaced by that home folder; unchanged if there is no such
    user.
    """
    try:
        return path.expanduser()
    except RuntimeError:
        return path
