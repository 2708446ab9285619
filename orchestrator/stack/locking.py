"""Make a lock: resolve what a project asks for to exact versions with hashes, by uv."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import StackError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import Lock
from orchestrator.stack.interpreter import interpreter
from orchestrator.stack.local import base_python, python_for
from orchestrator.stack.lock import read_lock
from orchestrator.stack.own_code import Request, refuse_unlockable, requests_of
from orchestrator.stack.relock import make_command
from orchestrator.stack.uv import run_uv


@dataclass(frozen=True)
class Wanted:
    """The packages of a file that uv cannot read, as requirements.

    `python`: the versions of Python that it asks for, as specifiers; "" for any. `note`: how it was read.
    """

    requests: tuple[Request, ...]
    python: str = ""
    note: str = ""


def make_lock(
    source: Path, lock: Path, *, upgrade: bool = False, wanted: Wanted | None = None
) -> tuple[str, Lock]:
    """Write `lock` from the requirements in `source`, for the version of Python that the project in its
    folder asks for; return that version and the lock. `wanted`: what `source` asks for, if uv cannot read it.

    Versions in an existing `lock` stay if they still fit, unless `upgrade`. On a computer that is not Linux,
    the lock is for every platform: machines have Linux. Raise StackError if nothing satisfies `source`, or
    if it asks for what no lock can pin; `lock` is then as it was.
    """
    project = source.parent
    requests = wanted.requests if wanted else requests_of(source)
    again = make_command(source, lock)
    refuse_unlockable(requests, project, again)
    version = _python(source, wanted.python if wanted else "")
    arguments = ["pip", "compile", "--generate-hashes", "--python-version", version]
    arguments += ["--universal"] if sys.platform != "linux" else []
    arguments += ["--upgrade"] if upgrade else []
    arguments += ["-" if wanted else source.name, "-o", os.path.relpath(lock, project)]
    before = lock.read_bytes() if lock.exists() else None
    _compile(arguments, source, wanted, f"{again}    # after an edit of {source.name}")
    return version, _accepted(lock, source, before)


def _compile(arguments: list[str], source: Path, wanted: Wanted | None, next_command: str) -> None:
    lines = "".join(f"{request.text}\n" for request in wanted.requests) if wanted else ""
    how = f". {wanted.note}" if wanted and wanted.note else ":"
    try:
        run_uv(arguments, cwd=source.parent, stdin=lines, purpose=f"{source} cannot be locked{how}")
    except StackError as error:
        error.next_command = error.next_command or next_command
        raise


def _python(source: Path, asked: str) -> str:
    project = source.parent
    python = python_for(asked, project, f"{source.name} asks for it") if asked else base_python(None, project)
    return ".".join(interpreter(python).version.split(".")[:2])


def _accepted(lock: Path, source: Path, before: bytes | None) -> Lock:
    """Return the lock that uv wrote. If it pins too little, restore the file as it was, and raise
    StackError that names `source`.
    """
    try:
        refuse_unlockable(_as_if_in(source, lock), source.parent, make_command(source, lock))
        return read_lock(lock)
    except StackError:
        if before is None:
            lock.unlink(missing_ok=True)
        else:
            atomic_write(lock, before)
        raise


def _as_if_in(source: Path, lock: Path) -> tuple[Request, ...]:
    """Return the lines of a lock of requirements, as requests of the file that it was made from."""
    return tuple(Request(source, 0, request.text) for request in requests_of(lock))
