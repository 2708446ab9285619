"""Parameters of a run: which of them nothing uses, and what a word such as `epochs=2` may mean."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.model import Progress
from orchestrator.model.progress import notice
from orchestrator.profile import Profile, load
from orchestrator.profile.document import Document
from orchestrator.profile.overrides import name_of
from orchestrator.profile.resolved import PARAMETER
from orchestrator.reads.sent import sent_of
from orchestrator.runs.find_run import profile_of
from orchestrator.session.project import Project

_SECTION = "train.params."
_READ = re.compile(rf"{PARAMETER}(\w*)")


def report_unused(profile: Profile, tell: Progress, *overrides: str) -> None:
    """Report the parameters of the profile that nothing uses; with `overrides`, only those that they set."""
    unused = list(unused_parameters(profile))
    if overrides:
        given = {name_of(each) for each in overrides}
        unused = [name for name in unused if f"{_SECTION}{name}" in given]
    for name in unused:
        notice(
            tell,
            f"Nothing uses {_SECTION}{name}: train.command has no {{{name}}}, and the project's code does "
            f"not read {PARAMETER}{name.upper()}.",
        )


def unused_parameters(profile: Profile) -> Iterator[str]:
    """Yield the parameters that are neither in braces in the command nor read as a variable by the code."""
    open_ones = [name for name in profile.train.params if name not in profile.train.placeholders]
    read = set(sent_of(profile).found(_READ)) if open_ones else set()
    if "" not in read:  # the code makes up the names of its parameters
        yield from (name for name in open_ones if name.upper() not in read)


def setting_meant(word: str, lease: str | None = None) -> str:
    """Return the advice for `word`, KEY=VALUE, given to `orch train` without an option.

    `lease`: the lease of the call, by default the only one; without any, orch.yaml of the current folder.
    """
    key, _, value = word.partition("=")
    if "." in key or key in Document.written_keys():
        return f"Did you mean --set {word}?"
    profile, name = _profile(lease), key.lstrip("-").replace("-", "_")
    given = "--set " + shlex.quote(f"{_SECTION}{name}={value}")
    if profile is None:
        return f"Did you mean {given}, for {{{name}}} in train.command?"
    if name in profile.train.placeholders:
        return f"Did you mean {given}?"
    return (
        f"The command line of the script is train.command, in {os.path.relpath(profile.path)}: "
        f"{shlex.join(profile.train.command)}. Add the argument there; or write {{{name}}} there, and give "
        f"its value with {given}."
    )


def _profile(lease: str | None) -> Profile | None:
    try:
        return profile_of(Project.at().lease(lease), ())
    except OrchError:
        pass
    try:
        return load(Path("orch.yaml"))
    except OrchError:
        return None
