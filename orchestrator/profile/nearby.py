"""Messages for a path that is not a profile: which profile was probably meant, and which exist nearby."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from orchestrator.profile.values import nearest

_LARGEST = 256 << 10
_MOST = 200
_LISTED = 5
_LONGEST = 200
_KEYS = (re.compile(rb"^cloud\s*:", re.MULTILINE), re.compile(rb"^train\s*:", re.MULTILINE))
"""Two keys that every profile has at its top."""


def shown_path(path: Path) -> str:
    """Format a path for one line of a message: control characters are escaped, a long path is cut in the
    middle.
    """
    text = str(path)
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def no_such_file(path: Path) -> str:
    """Name the profile with a similar name, else those that exist, else how to create one."""
    near = list(profiles_near(path))
    stems = {other.stem.lower(): other for other in reversed(near)}
    if word := nearest(path.stem.lower(), list(stems)):
        return f"there is no such file; did you mean {_typed(stems[word])}?"
    return f"there is no such file; {_listed(near)}"


def no_plain_file(path: Path, *, is_folder: bool) -> str:
    """Return the same as `no_such_file`, for a path that exists."""
    if not is_folder:
        return "this is not a regular file, and a profile must be one"
    return f"this is a folder, and a profile is a file; {_listed(list(profiles_near(path / '_')))}"


def profiles_near(path: Path) -> Iterator[Path]:
    """Find profiles in the folder of `path`, in the current one, and in `profiles` below each."""
    seen: set[Path] = set()
    for folder in (path.parent, path.parent / "profiles", Path(), Path("profiles")):
        for found in sorted(_yaml_files(folder)):
            if found.absolute() not in seen and looks_like_profile(found):
                seen.add(found.absolute())
                yield found


def _yaml_files(folder: Path) -> list[Path]:
    try:
        found = (each for each in folder.iterdir() if each.suffix in (".yaml", ".yml"))
        return sorted(islice(found, _MOST))
    except (OSError, ValueError):
        return []


def looks_like_profile(path: Path) -> bool:
    """Whether a file has the keys that every profile has."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return False
        text = path.read_bytes()
    except OSError:
        return False
    return all(key.search(text) for key in _KEYS)


def _listed(near: list[Path]) -> str:
    if not near:
        return "`orch init` writes a profile"
    more = f" and {len(near) - _LISTED} more" if len(near) > _LISTED else ""
    return f"there is {', '.join(_typed(each) for each in near[:_LISTED])}{more}"


def _typed(path: Path) -> str:
    return shown_path(Path(os.path.normpath(path)))
