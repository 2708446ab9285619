"""Find undeclared data: read by a project, as its code's literals or an observed run show, but in no
profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import ProfileError
from orchestrator.profile import OUTPUT_NAMES, Profile, load
from orchestrator.reads.literals import named_by_settings, named_paths
from orchestrator.reads.opened import Opened, read_opened
from orchestrator.reads.reference import in_place
from orchestrator.reads.sent import Sent, sent_of, sent_without_profile
from orchestrator.reads.undeclared import Undeclared, undeclared, unsent_among
from orchestrator.reads.undeclared_words import declare_command, profile_lines, undeclared_sentence

MOST_RUNS = 5
"""Recorded runs that are read, the latest first."""

MOST_PROFILES = 20


def of_project(project: Path) -> tuple[Undeclared, ...]:
    """Find the data that a first profile for this folder must declare."""
    sent = sent_without_profile(project)
    return _together(_named(sent, ()), *_ran(sent))


def of_profile(profile: Profile) -> tuple[Undeclared, ...]:
    """Find paths that the profile's code names, that exist here and would not be sent."""
    return _named(sent_of(profile), profile.train.outputs)


def of_run(
    opened: Opened, folder: Path, command: Sequence[str], begun: float
) -> tuple[tuple[Undeclared, ...], Path]:
    """Find files that a run of `command` opened and no profile declares, and the profile to edit."""
    profiles = _profiles(folder)
    if not profiles:
        sent = replace(sent_without_profile(folder), words=tuple(command))
        return undeclared(opened, sent, in_place(sent.project), begun=begun), folder / "orch.yaml"
    lacking = []
    for each in profiles:
        sent = sent_of(each)
        sent = replace(sent, words=(*sent.words, *command))
        view = in_place(sent.project)
        lacking.append(undeclared(opened, sent, view, outputs=each.train.outputs, begun=begun))
    least = min(range(len(profiles)), key=lambda number: sum(e.files for e in lacking[number]))
    return lacking[least], profiles[least].path


def advice_here(found: Sequence[Undeclared], profile: Path) -> str:
    """Return what to say after a run on this computer: what a machine would lack, and how to send it."""
    return (
        f"{undeclared_sentence(found)} Nothing is wrong here, but a machine would not have it.\n"
        f"To send it, {_remedy(found, profile)}"
    )


def advice_there(found: Sequence[Undeclared], profile: Path) -> str:
    """Return what to say before a run on a machine, which continues: what may happen, and how to send the
    data.
    """
    return (
        f"{undeclared_sentence(found, 'names')} It is not sent, and this run goes on without it: where the "
        "script needs it, it fails there or trains on something else. Where it does not, ignore this.\n"
        f"To send it with the next run, {_remedy(found, profile)}"
    )


def _remedy(found: Sequence[Undeclared], profile: Path) -> str:
    lines, command = profile_lines(found, profile), declare_command(found, profile)
    return f"add to {profile.name}:\n{lines}\nThis command adds it: {command}"


def _named(sent: Sent, outputs: Sequence[str]) -> tuple[Undeclared, ...]:
    opened = named_paths(sent.project, sent.code)
    return unsent_among(opened, sent, outputs=(*outputs, *OUTPUT_NAMES))


def named_at_the_top(project: Path) -> frozenset[str]:
    """Return the files and folders of a project that its configuration files name."""
    sent = sent_without_profile(project)
    return named_by_settings(sent.project, sent.code)


def _ran(sent: Sent) -> list[tuple[Undeclared, ...]]:
    from orchestrator.replay import recipe

    runs = sorted((sent.project / "runs").glob("*/observe"), key=lambda path: -path.stat().st_mtime)
    found = []
    for observe in runs[:MOST_RUNS]:
        known = recipe.read_recipe(observe.parent)
        if known is not None and known.cwd.resolve() == sent.project:
            found.append(undeclared(read_opened(observe), sent, in_place(sent.project), outputs=OUTPUT_NAMES))
    return found


def _together(*lists: Sequence[Undeclared]) -> tuple[Undeclared, ...]:
    """Return each path once, without those that lie within another."""
    known = {each.path: each for found in lists for each in found if each.reachable}
    return tuple(known[p] for p in sorted(known) if not any(p != q and p.is_relative_to(q) for q in known))


def _profiles(folder: Path) -> list[Profile]:
    """Return the profiles in a folder and in its `profiles/`; `orch.yaml` first."""
    places = [folder / "orch.yaml", *sorted(folder.glob("*.y*ml")), *sorted(folder.glob("profiles/*.y*ml"))]
    found = []
    for path in list(dict.fromkeys(places))[:MOST_PROFILES]:
        try:
            found.append(load(path))
        except ProfileError:
            continue
    return found
