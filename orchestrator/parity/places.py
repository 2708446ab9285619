"""Name files so that two runs in different folders can be compared. Pure."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.parity.changes import Facts, is_path_value

UP = 3
"""Levels above the project up to which files are named relative to it."""

ELSEWHERE = ("/", "~", "-", "@", "$", "../")
"""Prefixes of names of files outside the project's folders, see runtime.observe.project.roots and
`named_by_variables`.
"""

_AROUND = ("/", "~/", "../")
"""Prefixes of names of files that may be around a project."""

_KERNELS = ("ipykernel_launcher.py", "ipykernel_launcher")
"""Programs for which -f is the connection file. It may have any name: nbconvert creates a temporary one."""

_CONNECTION = re.compile(r"(?:.*/)?kernel-[^/]*\.json")
"""The file that a notebook server creates for each kernel."""

_HASH = re.compile(r"[0-9a-f]{16,64}")
"""The part of a path by which model hubs distinguish revisions."""

Entry = Mapping[str, Any]


def named_alike(a: Facts, b: Facts) -> tuple[Facts, Facts]:
    """Return the facts of two runs, with files outside the project named relative to it, so that ../.env of
    two projects is the same file.

    Names that both sides have are kept. Idempotent.
    """
    left, right = _without_revisions(*_told_apart(without_kernel(a), without_kernel(b)))
    shared = _names(left) & _names(right)
    return _paired(left, right, shared), _paired(right, left, shared)


def named_by_variables(facts: Facts) -> Facts:
    """Return the facts, with files below a folder that a variable contains named by the variable:
    $DATA/1.csv, the same on every machine, as for folders in arguments.
    """
    variables = {**facts.get("environment", {}), **facts.get("variables", {})}
    places = sorted(
        (
            (posixpath.normpath(value), name)
            for name, value in variables.items()
            if is_path_value(value) and value[0] == "/"
        ),
        key=lambda place: -len(place[0]),
    )
    return _renamed(facts, lambda entry: _called(str(entry["name"]), places))


def without_kernel(facts: Facts) -> Facts:
    """Return the facts without the connection file that a notebook server passes to a kernel with -f."""
    argv = [str(word) for word in facts.get("argv") or ()]
    kernel = facts.get("script") in _KERNELS
    words, files, rest = [], [], iter(argv)
    for word in rest:
        option, _, value = word.partition("=")
        if option in ("-f", "--f"):
            given = [value] if value else [found for found in [next(rest, None)] if found is not None]
            if given and (kernel or _CONNECTION.fullmatch(given[0])):
                files.append(posixpath.basename(given[0]))
                continue
            words += [word, *(() if value else given)]
            continue
        words.append(word)
    if not files:
        return facts
    listed = [each for each in _listed(facts) if posixpath.basename(str(each.get("path", ""))) not in files]
    return {**facts, "argv": words, "files": {**(facts.get("files") or {}), "list": listed}}


# ---------------------------------------------------------------- inside


def _told_apart(a: Facts, b: Facts) -> tuple[Facts, Facts]:
    """Return the facts with files of equal names distinguished by path: .env of the working folder and
    src/.env of the program's. Names of the project's files may be relative to either folder.
    """
    twice = _twice(a) | _twice(b)

    def placed(facts: Facts) -> Facts:
        folder = str(facts.get("cwd") or "") or _outermost(facts)

        def name(entry: Entry) -> str:
            own, path = str(entry["name"]), str(entry.get("path") or "")
            inside = bool(folder) and path.startswith(f"{folder}/")
            return posixpath.relpath(path, folder) if own in twice and inside else own

        return _renamed(facts, name)

    return (placed(a), placed(b)) if twice else (a, b)


def _without_revisions(a: Facts, b: Facts) -> tuple[Facts, Facts]:
    """Return the facts with downloaded files named without the revision, which a hub uses as a folder's name.

    Names that both sides have are kept, and so are those of two revisions in one run.
    """
    shared = _names(a) & _names(b)

    def named(facts: Facts) -> Facts:
        plain = Counter(_without_revision(each) for each in _listed(facts))

        def name(entry: Entry) -> str:
            own, found = str(entry["name"]), _without_revision(entry)
            return own if own in shared or plain[found] > 1 else found

        return _renamed(facts, name)

    return named(a), named(b)


def _without_revision(entry: Entry) -> str:
    name, path, folder = str(entry["name"]), str(entry.get("path") or ""), str(entry.get("fetched") or "")
    inside = path.removeprefix(f"{folder}/")
    if not folder or inside == path or not name.endswith(inside):
        return name
    kept = [part for part in inside.split("/") if part != "snapshots" and not _HASH.fullmatch(part)]
    return name.removesuffix(inside) + "/".join(kept or [posixpath.basename(inside)])


def _twice(facts: Facts) -> set[str]:
    """Return the names that several files in the project's folders share."""
    paths: dict[str, set[str]] = {}
    for entry in _listed(facts):
        if not entry.get("made") and not str(entry["name"]).startswith(ELSEWHERE):
            paths.setdefault(str(entry["name"]), set()).add(str(entry.get("path")))
    return {name for name, found in paths.items() if len(found) > 1}


def _outermost(facts: Facts) -> str:
    """Return the outermost folder in which names of the project's files begin; "" if there is none."""
    folders = {
        str(entry.get("path")).removesuffix(f"/{entry['name']}")
        for entry in _listed(facts)
        if str(entry.get("path") or "").endswith(f"/{entry['name']}")
    }
    return min(folders, key=len, default="")


def _paired(facts: Facts, other: Facts, shared: set[str]) -> Facts:
    theirs = {key for each in _listed(other) if each["name"] not in shared for key in _relative(each, other)}
    moved = facts.get("cwd") != other.get("cwd")
    taken = _names(facts)

    def name(entry: Entry) -> str:
        own, keys = str(entry["name"]), list(_relative(entry, facts))
        if own in shared or not keys:
            return own
        found = next((key for key in keys if key in theirs), keys[0] if moved else own)
        return own if found in taken else found

    return _renamed(facts, name)


def _relative(entry: Entry, facts: Facts) -> Iterator[str]:
    """Yield the paths of a file outside the project relative to the working folder and the program's folder:
    ../x.
    """
    path = str(entry.get("path") or "")
    if not str(entry["name"]).startswith(_AROUND) or str(entry["name"]).startswith("~/."):
        return
    for folder in _folders(facts):
        found = posixpath.relpath(path, folder) if path.startswith("/") else ""
        ups = found.split("/").count("..")
        top = posixpath.normpath(posixpath.join(folder, *[".."] * ups))
        if 0 < ups <= UP and top != "/":
            yield found


def _folders(facts: Facts) -> Iterator[str]:
    cwd = str(facts.get("cwd") or "")
    if cwd:
        yield cwd
        program = (facts.get("start") or {}).get("as")
        if program and posixpath.dirname(program):
            yield posixpath.normpath(posixpath.join(cwd, posixpath.dirname(program)))


def _names(facts: Facts) -> set[str]:
    return {str(each["name"]) for each in _listed(facts)}


def _listed(facts: Facts) -> list[dict[str, Any]]:
    return list((facts.get("files") or {}).get("list") or [])


def _renamed(facts: Facts, name: Callable[[Entry], str]) -> Facts:
    listed = [{**entry, "name": name(entry)} for entry in _listed(facts)]
    return {**facts, "files": {**facts["files"], "list": listed}} if listed else facts


def _called(name: str, places: Sequence[tuple[str, str]]) -> str:
    for folder, variable in places:
        if folder != "/" and (name == folder or name.startswith(f"{folder}/")):
            return f"${variable}{name[len(folder) :]}"
    return name
