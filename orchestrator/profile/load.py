"""Text -> Profile: read, override, validate, resolve; every problem of a stage is reported at once."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from orchestrator.errors import ProfileError
from orchestrator.profile import resolve as resolving
from orchestrator.profile.document import Document
from orchestrator.profile.nearby import no_plain_file, no_such_file, shown_path
from orchestrator.profile.overrides import overridden
from orchestrator.profile.refusals import dotted, place_of_key, place_of_value, problems_of
from orchestrator.profile.resolved import Profile
from orchestrator.profile.rules import Breach
from orchestrator.profile.tree import (
    MAX_BYTES,
    Data,
    ListNode,
    MapNode,
    Node,
    Place,
    Problem,
    Refused,
    read_tree,
)

MAX_SHOWN = 50

_read_tree = lru_cache(maxsize=8)(read_tree)
"""A command reads the same text up to ten times, which takes most of loading it."""


def load(
    path: Path,
    *,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    files: bool = False,
    at: Path | None = None,
) -> Profile:
    """Return the profile at `path`, with ORCH_SET_… of `environ` (this process's) and then `overrides`
    applied.

    `overrides` are key=value. Paths are relative to the folder of `path`, or of `at`, the original path of a
    copied profile. With `files`, code, lock, interpreter, data and script must also exist on this computer.
    Raises only ProfileError; its message has one line for each problem: unknown keys first, then in the order
    of the text.
    """
    environ = os.environ if environ is None else environ
    try:
        tree = overridden(deepcopy(_read_tree(_read(path), shown_path(path))), overrides, environ)
        return _profile(tree, at or path, environ, files=files)
    except Refused as error:
        _refuse(error.problems)


def _read(path: Path) -> bytes:
    """Read the file. Raises Refused, with the path alone as its place."""
    try:
        mode = Path(path).stat().st_mode
        if not stat.S_ISREG(mode):
            raise _unread(path, no_plain_file(path, is_folder=stat.S_ISDIR(mode)))
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _unread(path, no_such_file(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _unread(path, f"the file cannot be read: {reason.lower()}") from None


def _unread(path: Path, text: str) -> Refused:
    return Refused([Problem(Place(shown_path(path)), text)])


def _profile(tree: Node, path: Path, environ: Mapping[str, str], *, files: bool) -> Profile:
    if isinstance(tree, MapNode) and not tree.items:
        raise _unread(
            path, "the profile is empty; it needs version, name, cloud and train (`orch init` writes them)"
        )
    try:
        document = Document.model_validate(to_data(tree))
    except ValidationError as error:
        raise Refused(problems_of(error, tree)) from None
    profile, found = resolving.resolve(document, path, environ, dict(_places(tree)))
    found = found or (list(resolving.absent_files(profile)) if files else [])
    if found:
        raise Refused([_located(breach, tree) for breach in found])
    return profile


def _located(breach: Breach, tree: Node) -> Problem:
    if breach.at_key:
        return Problem(place_of_key(tree, breach.loc), breach.text, fix=breach.fix)
    place = place_of_value(tree, breach.loc)
    return Problem(place, f"{dotted(breach.loc)}: {breach.text}", fix=breach.fix)


def to_data(node: Node, keys: tuple[str, ...] = ()) -> Data:
    """Return `node` without places. Arguments, variables and parameters keep their text: 1.10 is not 1.1."""
    if isinstance(node, MapNode):
        return {key: to_data(item, (*keys, key)) for key, item in node.items.items()}
    if isinstance(node, ListNode):
        return tuple(to_data(item, (*keys, "*")) for item in node.items)
    return node.text if _is_text(keys) and node.value is not None else node.value


def _is_text(keys: tuple[str, ...]) -> bool:
    variable = keys[:2] in (("train", "env"), ("train", "params")) and len(keys) == 3
    return variable or keys in (("train", "command", "*"), ("data", "*", "prepare", "*"))


def _places(node: Node, key: str = "") -> Iterator[tuple[str, str]]:
    """Return the place of every value, by its dotted key."""
    if key:
        yield key, str(node.place)
    if isinstance(node, MapNode):
        for name, item in node.items.items():
            yield from _places(item, f"{key}.{name}" if key else name)
    elif isinstance(node, ListNode):
        for index, item in enumerate(node.items):
            yield from _places(item, f"{key}[{index}]")


def _refuse(problems: Sequence[Problem]) -> NoReturn:
    """Raise ProfileError at the first place, with the other problems on further lines."""
    first, *others = sorted(dict.fromkeys(problems), key=lambda problem: problem.order)
    lines = [first.text, *(f"{problem.place}: {problem.text}" for problem in others)]
    if len(lines) > MAX_SHOWN:
        lines = [*lines[:MAX_SHOWN], f"… and {len(lines) - MAX_SHOWN} more"]
    fix = next((problem.fix for problem in (first, *others) if problem.fix), None)
    raise ProfileError("\n".join(lines), where=str(first.place), next_command=fix) from None
