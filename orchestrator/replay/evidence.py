"""Check whether a repeated run used an intervention, or read past it by absolute paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.parity.changes import Facts
from orchestrator.parity.intervention import Candidate, Intervention, Other
from orchestrator.replay.recipe import Recipe
from orchestrator.replay.sides import Sides

_Files = dict[str, Mapping[str, Any]]


def bypassed(imposed: Intervention, repeated: Facts, sides: Sides, *, mounted: bool) -> str | None:
    """Return the first file that a repeated run read in its original version instead of the replaced one;
    None if there is none.

    Only differing files are considered. `mounted`: the run saw its copy at the original path.
    """
    mine, theirs = _by_name(sides.mine.environment), _by_name(sides.theirs.environment)
    read = {str(entry.get("path")): entry.get("sha256") for entry in _by_name(repeated).values()}
    for name in mine.keys() & theirs.keys():
        here, there = mine[name], theirs[name]
        own, other = str(here.get("path")), str(there.get("path"))
        if here.get("sha256") == there.get("sha256"):
            continue
        given = own in imposed.files or name in imposed.files
        if own in imposed.files and read.get(own) == here.get("sha256") is not None:
            return own
        elsewhere = other != own and not imposed.around and not (given and mounted)
        if elsewhere and read.get(other) == there.get("sha256") is not None:
            return other
    return None


def seen_by_both(each: Candidate, places: tuple[Path, ...]) -> Candidate:
    """Return the candidate with the other side's folders replaced too: values given to the run may name
    them.
    """
    imposed = each.imposed
    if imposed and not (imposed.path or imposed.python):
        imposed = imposed | Intervention(also=places)
    parts = tuple(seen_by_both(part, places) for part in each.parts)
    return replace(each, imposed=imposed, parts=parts)


def own_places(known: Recipe, mine: Facts, other: Other) -> tuple[Path, ...]:
    """Return the other side's folder, unless something that this side needs is in it or around it."""
    there = other.folder
    if there is None or there.is_relative_to(known.cwd) or known.cwd.is_relative_to(there):
        return ()
    words = (known.python, *known.argv, *known.variables.values())
    listed = (mine.get("files") or {}).get("list") or []
    needed = [*words, *(str(entry.get("path")) for entry in listed)]
    return () if any(f"{there}" in text for text in needed) else (there,)


def _by_name(facts: Facts) -> _Files:
    """Return the files that a run read and did not create."""
    listed = (facts.get("files") or {}).get("list") or []
    return {str(entry["name"]): entry for entry in listed if not entry.get("made")}
