"""lock: pin the packages of a project, with the hash of each file."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError
from orchestrator.model import Progress

if TYPE_CHECKING:
    from orchestrator.profile.package_lists import PackageList
    from orchestrator.stack import Wanted

_LOCK = "requirements.lock"


@dataclass(frozen=True)
class Locked:
    """A lock that was written.

    `python`: the version that it is for, "3.11"; `packages`: their number; `notes`: sentences on how the
    source was read.
    """

    path: str
    source: str
    python: str
    packages: int
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def lock(source: Path, output: Path | None, progress: Progress, *, upgrade: bool = False) -> Locked:
    """Write a lock with hashes.

    `source`: a file that names packages (requirements, a Pipfile, a conda environment), or a folder with one
    of profile.resolve.REQUIREMENTS. `output`: default requirements.lock beside it. Raise UsageError if there
    is no such file, it cannot be read, or the folder has a uv.lock or pylock.toml; StackError if no versions
    satisfy it, or it asks for what no lock can pin.
    """
    from orchestrator import stack
    from orchestrator.profile.package_lists import is_package_list, read_package_list

    named = _requirements(source, output)
    path = output or named.parent / _LOCK
    if path.exists() and path.samefile(named):
        again = shlex.join(["orch", "lock", str(source), "-o", str(named.parent / _LOCK)])
        raise UsageError(f"{named} would be overwritten by its own lock.", next_command=again)
    progress.say(f"Resolving {named}")
    found = read_package_list(named) if is_package_list(named) else None
    wanted = _wanted(named.absolute(), found) if found else None
    python, made = stack.make_lock(named.absolute(), path.absolute(), upgrade=upgrade, wanted=wanted)
    notes = found.notes if found else ()
    return Locked(str(path), str(named), python, len({pin.name for pin in made.pins}), notes)


def _wanted(source: Path, found: PackageList) -> Wanted:
    from orchestrator.stack import Request, Wanted

    requests = tuple(Request(source, each.line, each.text) for each in found.requirements)
    return Wanted(requests, found.python, " ".join(found.notes))


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
            next_command="orch lock    # once requirements.in names the packages that the code imports",
        )
    return found
