"""Add data to the text of a profile: paths that the user names, or that a run was seen to read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import ProfileError, UsageError
from orchestrator.model.paths import is_there, with_home
from orchestrator.profile import load
from orchestrator.profile.edit import NotEditable
from orchestrator.profile.edit_data import NewData, with_data
from orchestrator.profile.tree import Refused
from orchestrator.reads.sent import Sent, sent_of
from orchestrator.reads.undeclared import Undeclared
from orchestrator.reads.undeclared_words import profile_lines, source_of
from orchestrator.sizing.profile_change import write_minimums


def add_data(profile: Path, paths: Sequence[Path]) -> str:
    """Declare folders or files, given relative to the current folder, as data. Returns the profile's new
    text.

    A path below the project keeps its place on the machine, unless the code names it by its absolute path; it
    then gets that path, as does an absolute path outside the project. Any other is named by its last part.
    Comments and formatting are preserved. Raises UsageError.
    """
    sent = sent_of(load(profile))
    entries = [_entry(path, profile, sent) for path in paths]
    return _written(profile, entries, [f"  - {_line(entry)}" for entry in entries])


def has_files(path: Path) -> bool:
    """Whether a path, relative to the current folder, is a file or a folder with one at any depth."""
    place = Path(os.path.normpath(Path.cwd() / with_home(path)))
    if not place.is_dir():
        return True
    return any(
        files or any((Path(folder) / name).is_symlink() for name in names)
        for folder, names, files in os.walk(place)
    )


def declare(profile: Path, found: Sequence[Undeclared]) -> str:
    """Declare what a run reads; returns the profile's new text. Raises UsageError."""
    entries = [NewData(source_of(each.path, profile), each.target) for each in found]
    return _written(profile, entries, profile_lines(found, profile).splitlines()[1:])


def _line(entry: NewData) -> str:
    return (
        f"{{source: {entry.source}, target: {entry.target}}}" if entry.target else f"source: {entry.source}"
    )


def _entry(path: Path, profile: Path, sent: Sent) -> NewData:
    place = Path(os.path.normpath(Path.cwd() / with_home(path)))
    if not is_there(place):
        raise UsageError(
            f"{path} does not exist, so it cannot be declared as data.",
            next_command="ls    # what data is here?",
        )
    inside = place.is_relative_to(sent.project) or place.resolve().is_relative_to(sent.project)
    kept = sent.names_absolutely(place) if inside else path.is_absolute()
    return NewData(source_of(place, profile), str(place) if kept else None)


def _written(profile: Path, entries: Sequence[NewData], shown: Sequence[str]) -> str:
    try:
        before = profile.read_bytes().decode("utf-8")
        after = with_data(before, entries)
    except (NotEditable, Refused, UnicodeDecodeError) as error:
        raise UsageError(
            f"{profile} was not changed: {error}. Add these lines below its data: yourself:\n"
            + "\n".join(shown)
        ) from None
    if after != before:
        try:
            write_minimums(profile, before, after)
        except ProfileError as error:
            raise UsageError(f"{profile} was not changed, because with these data: {error.message}") from None
    return after
