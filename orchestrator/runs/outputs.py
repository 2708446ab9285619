"""Compare the outputs of two runs, file by file: the same bytes, the same content, or different."""

from __future__ import annotations

import hashlib
import json
import lzma
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.model import RunRecord
from orchestrator.model.files import open_regular
from orchestrator.runtime.agent.events import MARK

_MOST_MEMBERS = 100_000
_MOST_BYTES = 64 << 30
_MOST_NOTE = 1 << 20
_KERAS_NOTE = "metadata.json"
_KERAS_TIME = "date_saved"


class Sameness(StrEnum):
    """How two files of one name compare."""

    BYTES = "bytes"
    CONTENT = "content"
    """An archive whose members are equal except for the times at which they were saved."""
    DIFFERENT = "different"
    ONLY_FIRST = "only_first"
    ONLY_SECOND = "only_second"

    @property
    def same(self) -> bool:
        return self in (Sameness.BYTES, Sameness.CONTENT)


@dataclass(frozen=True)
class ComparedOutput:
    """`path` is relative to the run's folder."""

    path: str
    found: Sameness


@dataclass(frozen=True)
class ComparedMetric:
    """A metric of both runs; None for a run that does not have it."""

    name: str
    first: Any
    second: Any

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compare_outputs(first: RunRecord, second: RunRecord) -> tuple[ComparedOutput, ...]:
    """Return every output of either run, those of the first run first, in its order.

    Files for TensorBoard are left out: their names and all their events contain the time of writing.
    """
    one, other = (
        {each["path"]: each for each in record.artifacts if MARK not in PurePosixPath(each["path"]).name}
        for record in (first, second)
    )
    paths = dict.fromkeys([*one, *other])
    return tuple(ComparedOutput(path, _found(path, one, other, first, second)) for path in paths)


def _found(
    path: str, one: Mapping[str, Any], other: Mapping[str, Any], first: RunRecord, second: RunRecord
) -> Sameness:
    if path not in other:
        return Sameness.ONLY_FIRST
    if path not in one:
        return Sameness.ONLY_SECOND
    sums = one[path].get("sha256"), other[path].get("sha256")
    if sums[0] and sums[0] == sums[1]:
        return Sameness.BYTES
    return (
        Sameness.CONTENT if _same_archive(first.folder / path, second.folder / path) else Sameness.DIFFERENT
    )


def _same_archive(one: Path, other: Path) -> bool:
    """Return whether both are zip archives, as .keras and .npz files are, with the same members."""
    members = [_members(path) for path in (one, other)]
    return members[0] is not None and members[0] == members[1]


def _members(path: Path) -> dict[str, object] | None:
    """Return name → SHA-256 of each member; None if the file is not an archive, or a damaged or huge one."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            listed = archive.infolist()
            if len(listed) > _MOST_MEMBERS or sum(each.file_size for each in listed) > _MOST_BYTES:
                return None
            facts: dict[str, object] = {each.filename: _digest(archive, each) for each in listed}
            if _KERAS_NOTE in facts and archive.getinfo(_KERAS_NOTE).file_size <= _MOST_NOTE:
                note = json.loads(archive.read(_KERAS_NOTE))
                if isinstance(note, dict):
                    facts[_KERAS_NOTE] = {key: each for key, each in note.items() if key != _KERAS_TIME}
            return facts if len(facts) == len(listed) else None
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError):
        return None


def _digest(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    with archive.open(member) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def compare_metrics(first: RunRecord, second: RunRecord) -> tuple[ComparedMetric, ...]:
    """Return the metrics that differ, in the order of the first run. NaN equals NaN."""
    names = dict.fromkeys([*first.metrics, *second.metrics])
    pairs = (ComparedMetric(name, first.metrics.get(name), second.metrics.get(name)) for name in names)
    return tuple(each for each in pairs if repr(each.first) != repr(each.second))
