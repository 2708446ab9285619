"""Put the minimums of a sizing into a profile's text. The change is shown first; if it is not safe,
nothing is changed.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from orchestrator.errors import ProfileError, UsageError
from orchestrator.hosts.atomic import atomic_file
from orchestrator.profile import load
from orchestrator.profile.edit import NotEditable, edited
from orchestrator.profile.edit_data import NewData, with_data
from orchestrator.reads.undeclared_words import source_of
from orchestrator.sizing.minimums import Minimum
from orchestrator.sizing.size import Sized


def change_profile(profile: Path | str, sized: Sized) -> tuple[str, str]:
    """Return the profile's text with the minimums, and the change as a unified diff; "" if nothing changes.

    Data that the training reads and the profile does not declare are added. Comments and everything else stay
    as they are. Nothing is written. Raise UsageError if the text cannot be changed safely.
    """
    path = Path(profile)
    try:
        before = path.read_bytes().decode("utf-8")
        changes = {("resources", *each.key.split(".")): each.text for each in _written(path, sized)}
        after = edited(before, changes)
        new = [
            NewData(source_of(each.path, path), each.target) for each in sized.undeclared if each.reachable
        ]
        after = with_data(after, new)
    except (NotEditable, UnicodeDecodeError, ProfileError) as error:
        raise UsageError(
            f"{path} was not changed: {error}. Add these lines yourself:\n{sized.snippet.rstrip()}"
        ) from None
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), str(path), f"{path} (sized)"
    )
    return after, "".join(lines)


def _written(path: Path, sized: Sized) -> list[Minimum]:
    """Return the minimums to write: all of them, except for the GPU's if the profile names a GPU."""
    gpu = load(path).resources.accelerator
    named = gpu is not None and gpu.name is not None
    return [each for each in sized.minimums if not (named and each.key.startswith("accelerator."))]


def write_minimums(profile: Path | str, before: str, after: str) -> None:
    """Replace the profile by `after`, atomically, if it still equals `before` and the result loads."""
    path = Path(profile)
    trial = path.with_name(f".{path.name}.sized")
    try:
        trial.write_bytes(after.encode())
        load(trial)
    finally:
        trial.unlink(missing_ok=True)
    if path.read_bytes().decode("utf-8") != before:
        raise UsageError(f"{path} was changed by something else meanwhile, so orch did not write it.")
    with atomic_file(path, path.stat().st_mode & 0o777) as part:
        part.write(after.encode())
