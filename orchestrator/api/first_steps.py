"""What a new profile still needs before `orch up`: a command, packages, a lock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import StackError
from orchestrator.profile import Profile, load
from orchestrator.profile.resolve import lock_command, requirements_of
from orchestrator.profile.start_command import NOTEBOOK_OUTPUT, StartKind, find_start
from orchestrator.session.session import read_lock

_FOR_NOTEBOOKS = ("nbconvert", "ipykernel")
_WITH_BOTH = re.compile(r"\b(jupyter|jupyterlab|notebook)\b(?!-)")
"""Packages that require both, where no lock tells."""


@dataclass(frozen=True)
class FirstSteps:
    """`found`: sentences on what was found or is missing. `commands`: what to do before `orch up`, in order.
    `lacking`: packages that the command needs and the lock, or without one the requirements, do not name.
    """

    found: tuple[str, ...]
    commands: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    is_command_found: bool = True


def first_steps(path: Path) -> FirstSteps:
    """Return what the profile that `orch init` wrote at `path` still needs. Raises ProfileError."""
    profile = load(path)
    start = find_start(profile.code.path)
    no_lock = (
        ()
        if profile.stack.lock
        else ("No lock file with hashes was found; orch needs one to install the same packages.",)
    )
    locking = () if profile.stack.lock else (lock_command(profile.code.path),)
    if start.kind is StartKind.NONE:
        line = f"line {_line(profile)} of {path}"
        known = " or ".join(f"`{each}`" for each in start.candidates) or "`python path/to/script.py`"
        said = f"No script was found: {line} needs your command, for example {known}."
        return FirstSteps((said, *no_lock), (f"edit {line}", *locking), is_command_found=False)
    if start.kind is StartKind.NOTEBOOK and start.file is not None:
        lacking = _lacking(profile)
        said = (
            f"No script was found, but the notebook {start.file.name}: nbconvert executes it, and the "
            f"executed copy comes back in {NOTEBOOK_OUTPUT}."
        )
        return FirstSteps((said, *_missing(profile, lacking), *no_lock), _adding(profile, lacking), lacking)
    return FirstSteps(no_lock, locking)


def _line(profile: Profile) -> str:
    return profile.where("train.command").rsplit(":", 2)[1]


def _lacking(profile: Profile) -> tuple[str, ...]:
    if profile.stack.lock:
        try:
            pinned = {pin.name for pin in read_lock(profile).pins}
        except StackError:  # `orch init` reports a lock that is refused by itself
            return ()
        return tuple(name for name in _FOR_NOTEBOOKS if name not in pinned)
    named = requirements_of(profile.code.path)
    text = named.read_text(errors="replace").lower() if named else ""
    return () if _WITH_BOTH.search(text) else tuple(name for name in _FOR_NOTEBOOKS if name not in text)


def _missing(profile: Profile, lacking: Sequence[str]) -> tuple[str, ...]:
    named = profile.stack.lock or requirements_of(profile.code.path)
    where = named.name if named else "No file of requirements"
    verb = "lacks" if named else "names"
    return (f"{where} {verb} {' and '.join(lacking)}, which the notebook needs.",) if lacking else ()


def _adding(profile: Profile, lacking: Sequence[str]) -> tuple[str, ...]:
    """Return how to add packages and make the lock again."""
    lock, code = profile.stack.lock, profile.code.path
    if lock and lacking and lock.name == "uv.lock":
        return (f"uv add {' '.join(lacking)}",)
    if not lacking:
        return () if lock else (lock_command(code),)
    named = requirements_of(code)
    return (
        f"add {' and '.join(lacking)} to {named.name if named else 'requirements.in'}",
        lock_command(code),
    )
