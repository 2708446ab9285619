"""Find the file that a lock was made from, and the command that makes the lock anew."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from orchestrator.errors import StackError
from orchestrator.stack.own_code import refuse_unlockable, requests_of

_HEADER_LINES = 10
_COMPILED = re.compile(r"^#\s+(?:uv pip compile|pip-compile)\s(?P<arguments>.*)$", re.MULTILINE)


def source_of(lock: Path) -> Path | None:
    """Return the file that `lock` was made from: the one that its header names, else the one beside it that
    names packages. None if there is none.
    """
    from orchestrator.profile.resolve import requirements_of

    named = (lock.parent / word for word in _header_words(lock))
    found = next((path for path in named if _is_another(path, lock)), None)
    if found is None:
        beside = requirements_of(lock.parent)
        found = beside if beside and _is_another(beside, lock) else None
    return found


def _is_another(path: Path, lock: Path) -> bool:
    return path.is_file() and path.resolve() != lock.resolve()


def _header_words(lock: Path) -> list[str]:
    """Return the words of the command that the resolver wrote at the top of `lock`."""
    try:
        head = "\n".join(lock.read_text("utf-8-sig").splitlines()[:_HEADER_LINES])
        found = _COMPILED.search(head)
        return shlex.split(found["arguments"]) if found else []
    except (OSError, ValueError):
        return []


def relock_command(lock: Path) -> str:
    """Return the command that makes `lock` anew. A requirements.txt without hashes stays, as the source."""
    if lock.name == "uv.lock":
        return "uv lock"
    source = source_of(lock)
    if source is None and lock.suffix == ".txt":
        return make_command(lock, lock.with_suffix(".lock"))
    if source is None:
        return f"{make_command(Path('FILE'), lock)}    # FILE names the packages, one a line"
    return make_command(source, lock)


def make_command(source: Path, lock: Path) -> str:
    """Return the shortest `orch lock` that writes `lock` from `source`."""
    from orchestrator.profile.resolve import lock_command, requirements_of

    beside = lock.name == "requirements.lock" and lock.parent == source.parent
    if beside and requirements_of(source.parent) == source:
        return lock_command(source.parent)
    return shlex.join(["orch", "lock", _short(source), "-o", _short(lock)])


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def complete(error: StackError, lock: Path) -> StackError:
    """Return the error of a lock that is refused, with the command that makes the lock anew.

    If the file that the lock was made from asks for what no lock can pin, that is the error.
    """
    source = source_of(lock)
    if source is not None:
        try:
            refuse_unlockable(requests_of(source), source.parent, make_command(source, lock))
        except StackError as cause:
            return cause
    error.next_command = error.next_command or relock_command(lock)
    return error
