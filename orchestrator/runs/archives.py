"""Compare two zip archives, such as .keras and .npz files, member by member.

The settings of a Keras archive are compared as values: they contain the time of saving, and addresses in the
memory of the process that saved them.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.model.files import open_regular

_MOST_MEMBERS = 100_000
_MOST_BYTES = 64 << 30
_MOST_SETTINGS = 16 << 20
_MOST_VALUES = 1_000_000
_MOST_NAMED = 100

_KERAS_NOTE = "metadata.json"
"""Only a Keras archive has this member."""
_KERAS_SETTINGS = (_KERAS_NOTE, "config.json")
_KERAS_TIME = "date_saved"
_KERAS_SHARED = "shared_object_id"
"""Python's id() of an object. Only whether two objects have the same id is compared, not the number."""
_KERAS_WEIGHTS = ".weights.h5"


@dataclass(frozen=True)
class ComparedArchive:
    """`members`: those that differ or that only one archive has, at most 100, in the order of the first
    archive.

    `weights`: whether the weights of two Keras archives are the same; None if neither has any.
    """

    members: tuple[str, ...]
    weights: bool | None

    @property
    def same(self) -> bool:
        return not self.members


def compare_archives(one: Path, other: Path) -> ComparedArchive | None:
    """Compare two archives; None if one of the files is not an archive, is damaged, or is too large."""
    first = members(one)
    second = members(other) if first is not None else None
    if first is None or second is None:
        return None
    names = dict.fromkeys([*first, *second])
    differing = [name for name in names if first.get(name) != second.get(name)]
    weights = [name for name in names if name.endswith(_KERAS_WEIGHTS)]
    same = not any(name.endswith(_KERAS_WEIGHTS) for name in differing) if weights else None
    return ComparedArchive(tuple(differing[:_MOST_NAMED]), same)


def members(path: Path) -> dict[str, str] | None:
    """Return the SHA-256 of each member by its name; None if the file is not an archive, is damaged, or is
    too large.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            listed = archive.infolist()
            if len(listed) > _MOST_MEMBERS or sum(each.file_size for each in listed) > _MOST_BYTES:
                return None
            keras = any(each.filename == _KERAS_NOTE for each in listed)
            found = {
                each.filename: (keras and _digest_of_settings(archive, each)) or _digest(archive, each)
                for each in listed
            }
            return found if len(found) == len(listed) else None
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError):
        return None


def _digest(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    with archive.open(member) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


# ---------------------------------------------------------------- settings of Keras


class _Number(str):
    """A number as it was written: 1, 1.0 and "1" are different values."""


def _digest_of_settings(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str | None:
    """Return a digest of the values in a member with settings of Keras; None if it is another member, is
    not JSON, or is too large.
    """
    if member.filename not in _KERAS_SETTINGS or member.file_size > _MOST_SETTINGS:
        return None
    raw = archive.read(member)
    if sum(map(raw.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        return None
    try:
        found = json.loads(
            raw.decode(),
            object_pairs_hook=_object,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_Number,
        )
        if isinstance(found, dict) and member.filename == _KERAS_NOTE:
            found.pop(_KERAS_TIME, None)
        text = repr(_canonical(found, {}))
    except (ValueError, RecursionError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _canonical(value: Any, ids: dict[str, int]) -> list[Any]:
    """Return `value` as lists that name each type, keys sorted. `ids`: the number of each shared object, by
    its first appearance; it is filled here.
    """
    if isinstance(value, Mapping):
        return ["{", *([key, _member(key, value[key], ids)] for key in sorted(value))]
    if isinstance(value, list):
        return ["[", *(_canonical(each, ids) for each in value)]
    return [type(value).__name__, value]


def _member(key: str, value: Any, ids: dict[str, int]) -> list[Any]:
    if key == _KERAS_SHARED and isinstance(value, _Number):
        return ["shared", ids.setdefault(value, len(ids))]
    return _canonical(value, ids)
