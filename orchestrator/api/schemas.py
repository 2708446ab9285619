"""schema and init: JSON Schemas, and a first profile."""

from __future__ import annotations

import json
import os
import shlex
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ProfileError, StackError, UsageError
from orchestrator.hosts.atomic import atomic_write

if TYPE_CHECKING:
    from orchestrator.profile.terraform import TerraformOutputs


def schema(which: str) -> dict[str, Any]:
    """The JSON Schema of `profile`, or of what `run` and `lint` write."""
    if which == "profile":
        from orchestrator.profile import json_schema

        return json_schema()
    if which in ("run", "lint"):
        text = files("orchestrator.report").joinpath(f"{which}.schema.json").read_text()
        value: dict[str, Any] = json.loads(text)
        return value
    raise UsageError(f"There is no schema {which!r}. Schemas: profile, run, lint.")


def start_profile(
    project: Path, output: Path, force: bool, ground: TerraformOutputs | None = None
) -> tuple[Path, str]:
    """Write a profile for `project` at `output` (relative to it); returns its path and text.

    `ground`: terraform outputs, for a machine in that cloud.
    """
    from orchestrator.lint import checkpoint_folders
    from orchestrator.profile import FoundData, load, starter
    from orchestrator.reads.advice import named_at_the_top, of_project
    from orchestrator.reads.undeclared_words import amount, source_of

    if not project.is_dir():
        raise UsageError(f"{project} is not a folder.")
    path = output if output.is_absolute() else project / output
    if path.exists() and not force:
        raise _there_already(path, project, output)
    found = of_project(project)
    data = [FoundData(source_of(e.path, path), e.target, f"the code reads it: {amount(e)}") for e in found]
    text = starter(project, ground, data, checkpoint_folders, named_at_the_top(project))
    atomic_write(path, text.encode())
    load(path)
    return path, text


def _there_already(path: Path, project: Path, output: Path) -> UsageError:
    """The error for an existing profile; it names what the code reads and the profile does not declare."""
    from orchestrator.profile import load
    from orchestrator.reads.advice import of_profile
    from orchestrator.reads.undeclared_words import declare_command, undeclared_sentence

    try:
        found = of_profile(load(path))
    except ProfileError:
        found = ()
    said = f" {undeclared_sentence(found, 'names')}" if found else ""
    other = _unused(path)
    folder = "" if project == Path() else f"{shlex.quote(str(project))} "
    beside = f"orch init {folder}--output {shlex.quote(str(output.with_name(other.name)))}"
    lost = f"--force instead overwrites {path.name}, and your edits in it are lost"
    next_command = (
        f"{declare_command(found, path)}    # or, for a new profile beside it: {beside}"
        if found
        else f"{beside}    # {lost}"
    )
    return UsageError(
        f"{path} exists already.{said}", exists="It was not changed.", next_command=next_command
    )


def _unused(path: Path) -> Path:
    """Return a path beside an existing file that does not exist yet: orch-2.yaml beside orch.yaml."""
    others = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(other for other in others if not os.path.lexists(other))


def missing_lock(profile: Path) -> str | None:
    """The command that creates the missing lock file; None if there is one."""
    from orchestrator.profile import load
    from orchestrator.profile.resolve import lock_command

    wanted = load(profile)
    return None if wanted.stack.lock else lock_command(wanted.code.path)


def refused_lock(profile: Path) -> StackError | None:
    """Why the profile's lock cannot be used, with the next command; None if it can, or is missing."""
    from orchestrator import stack
    from orchestrator.profile import load

    lock = load(profile).stack.lock
    try:
        if lock:
            stack.read_lock(lock)
    except StackError as error:
        return error
    return None
