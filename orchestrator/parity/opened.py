"""Compare which files the two programs read: by name, content and order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class FilesGap:
    """How the files differ. `kind`: content, missing (only one program read it) or order; `name`: the first
    such file, in the order in which A read them; `others`: the number of further ones.

    `a` and `b` are its entries in environment.json, None for a side that did not read it. For an order, file
    `position` (from 1) is `name` in A and `instead` in B.
    """

    kind: str
    name: str
    others: int
    a: Entry | None = None
    b: Entry | None = None
    position: int = 0
    instead: str = ""


def files_gap(a: Mapping[str, Any], b: Mapping[str, Any]) -> FilesGap | None:
    """Return the difference of the files of two environment.json; None if there is none.

    Ignored are files that a program wrote itself, files that were only found open (the other side may have
    closed them already), settings in the home folder that one side lacks, and caches of libraries.
    """
    left, right = _read(a), _read(b)
    both = [name for name in left if name in right]
    changed = [name for name in both if _content(left[name]) != _content(right[name])]
    if changed:
        name = changed[0]
        return FilesGap("content", name, len(changed) - 1, left[name], right[name])
    missing = _missing(left, right)
    if missing:
        return FilesGap("missing", missing[0], len(missing) - 1, a=left[missing[0]])
    missing = _missing(right, left)
    if missing:
        return FilesGap("missing", missing[0], len(missing) - 1, b=right[missing[0]])
    order = [name for name in right if name in left]
    if both != order:
        place = next(i for i, (x, y) in enumerate(zip(both, order, strict=True)) if x != y)
        return FilesGap("order", both[place], 0, position=place + 1, instead=order[place])
    return None


def _missing(have: Mapping[str, Entry], lack: Mapping[str, Entry]) -> list[str]:
    """Return files of one side whose content the other side did not read under any name, or read less
    often.
    """
    spare = Counter(entry.get("sha256") for name, entry in lack.items() if name not in have)
    missing = []
    for name, entry in have.items():
        if name in lack or is_setting(entry):
            continue
        spare[entry.get("sha256")] -= 1
        if spare[entry.get("sha256")] < 0:
            missing.append(name)
    return missing


def _read(facts: Mapping[str, Any]) -> dict[str, Entry]:
    listed: Sequence[Entry] = (facts.get("files") or {}).get("list") or []
    counted = (
        entry
        for entry in listed
        if not entry.get("made") and entry.get("way") != "descriptor" and not is_cache(entry)
    )
    return {str(entry["name"]): entry for entry in counted}


def is_cache(entry: Entry) -> bool:
    """Return whether the file is a library's cache, which it can create again; judged by the name in old
    recordings.
    """
    told = entry.get("cache")
    return str(entry.get("name", "")).startswith("~/.cache/") if told is None else bool(told)


def is_setting(entry: Entry) -> bool:
    """Return whether it is a hidden file in the home folder that may be missing on one side, and not
    downloaded data.
    """
    return str(entry["name"]).startswith("~/.") and not entry.get("fetched")


def _content(entry: Entry) -> tuple[Any, Any]:
    return entry.get("bytes"), entry.get("sha256")
