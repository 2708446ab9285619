"""Describe undeclared data: one sentence, the lines for the profile, the command that writes them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from orchestrator.model.counted import counted
from orchestrator.profile.edit_data import scalar
from orchestrator.reads.undeclared import Undeclared, is_secret

_UNITS = ("kB", "MB", "GB", "TB")
_SHOWN = 5


def undeclared_sentence(found: Sequence[Undeclared], verb: str = "reads") -> str:
    """Return the sentence: `The script reads 207 MB that no profile declares: my_data/ (412 files).` With the
    verb "names", it is about the code, whichever script of it runs.
    """
    who = "The code" if verb == "names" else "The script"
    names = ", ".join(_called(each) for each in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{who} {verb} {_amount(sum(e.bytes for e in found))} that no profile declares: {names}{more}."


def profile_lines(found: Sequence[Undeclared], profile: Path) -> str:
    """Return the lines to add to the profile's `data:`."""
    written = ["data:"]
    for each in found:
        if _is_secret(each):
            written += [f"  # not {each.name}: give secrets as train.env: NAME: {{from_env: NAME}}"]
            continue
        written += [f"  - source: {scalar(source_of(each.path, profile))}"]
        if each.target:
            written += [f"    target: {scalar(each.target)}"]
        elif not each.reachable:
            written += [f"    # and have the script read {each.path.name} instead of {each.name}"]
    return "\n".join(written)


def source_of(path: Path, profile: Path) -> str:
    """Return a path as the profile names it: relative, unless that would lead up three folders or more."""
    relative = os.path.relpath(path, profile.resolve().parent)
    return str(path) if relative.startswith("../../..") else relative


def declare_command(found: Sequence[Undeclared], profile: Path) -> str:
    """Return the command that writes the lines."""
    options = [f"--add-data {shlex.quote(_named(each))}" for each in found if not _is_secret(each)]
    if not options:
        return f"${{EDITOR:-vi}} {shlex.quote(_typed(profile.resolve()))}    # train.env"
    output = _typed(profile.resolve())
    where = [] if output == "orch.yaml" else [f"--output {shlex.quote(output)}"]
    return " ".join(["orch init", *options, *where])


def _is_secret(each: Undeclared) -> bool:
    return not each.is_folder and is_secret(each.path.name)


def _named(each: Undeclared) -> str:
    """Return a path as it is typed in the current folder; relative if no profile can put it in its place."""
    return _typed(each.path) if each.reachable else os.path.relpath(each.path)


def _typed(path: Path) -> str:
    """Return a path as it is typed in the current folder."""
    here = Path.cwd()
    return os.path.relpath(path, here) if path.is_relative_to(here) else str(path)


def amount(each: Undeclared) -> str:
    """Return `412 files, 207 MB`."""
    count = f"{counted(each.files, 'file')}, " if each.is_folder else ""
    return f"{count}{_amount(each.bytes)}"


def _called(each: Undeclared) -> str:
    if not each.is_folder:
        return each.name
    return f"{each.name}/ ({counted(each.files, 'file')})"


def _amount(count: float) -> str:
    if count < 1000:
        return counted(round(count), "byte")
    for unit in _UNITS:
        count /= 1000
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:.3g} {unit}" if count < 100 else f"{count:.0f} {unit}"
    return ""
