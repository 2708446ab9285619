"""lock: pin the packages of a project, with the hash of each file."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.model import Progress

_LOCK = "requirements.lock"


@dataclass(frozen=True)
class Locked:
    """A lock that was written. `python`: the version that it is for, "3.11"; `packages`: their number."""

    path: str
    source: str
    python: str
    packages: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def lock(source: Path, output: Path | None, progress: Progress, *, upgrade: bool = False) -> Locked:
    """Write a lock with hashes.

    `source`: a file that names packages, or a folder with one of profile.resolve.REQUIREMENTS. `output`:
    default requirements.lock beside it. Raise UsageError if there is no such file, or the folder has a
    uv.lock or pylock.toml; StackError if no versions satisfy it.
    """
    from orchestrator import stack

    named = _requirements(source, output)
    path = output or named.parent / _LOCK
    if path.exists() and path.samefile(named):
        again = shlex.join(["orch", "lock", str(source), "-o", str(named.parent / _LOCK)])
        raise UsageError(f"{named} would be overwritten by its own lock.", next_command=again)
    progress.say(f"Resolving {named}")
    python, made = stack.make_lock(named.absolute(), path.absolute(), upgrade=upgrade)
    return Locked(str(path), str(named), python, len({pin.name for pin in made.pins}))


def _requirements(source: Path, output: Path | None) -> Path:
    """Return the file that names the packages."""
    from orchestrator.profile.resolve import LOCKS, REQUIREMENTS, requirements_of

    if source.is_file():
        return source
    if not source.is_dir():
        raise UsageError(
            f"{source} does not exist.", next_command="orch lock FILE    # that names the packages"
        )
    other = next((name for name in LOCKS[:2] if (source / name).is_file()), None)
    if other and output is None:
        anew = shlex.join(["orch", "lock", str(source), "-o", str(source / other)])
        raise UsageError(
            f"{source / other} is this project's lock already.",
            next_command="uv lock" if other == "uv.lock" else f"{anew}    # writes it anew",
        )
    found = requirements_of(source)
    if found is None:
        raise UsageError(
            f"{source} has none of {', '.join(REQUIREMENTS)}: nothing says which packages it needs.",
            next_command="python -m pip list --format=freeze > requirements.in && orch lock    # in the "
            "environment where it runs; or write requirements.in: one package a line",
        )
    return found
