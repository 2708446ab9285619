"""The current inputs of a run (command, code, data, lock), compared with those of a record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from orchestrator import sync
from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import DataFacts, Lock, Manifest, RunRecord
from orchestrator.model.answers import LONG, Malformed, Most, decoded
from orchestrator.model.counted import counted
from orchestrator.model.files import regular_bytes
from orchestrator.profile import Profile
from orchestrator.runs.sbom import packages_then_and_now
from orchestrator.session.project import Project
from orchestrator.session.session import read_lock
from orchestrator.session.trees import Trees, code_ignored, contents_of, facts_of

_FILES = "code.json"
_DATA = "data.json"
_MOST_DATA = 100_000
"""Most data files whose list is kept with a run; of more, only that they differ can be said."""
_Kept = Annotated[dict[str, str], Most(1_000_000)]
_NAMED = 3
"""Files that are named; the others are counted."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a run. `code`: each path and its content.

    `data`: None if a part is missing, because `prepare` creates it, or is in a bucket, where the lease's pin
    describes it. `data_files`: each data file and its content, if `data` is known.
    """

    command: tuple[str, ...]
    code: dict[str, str]
    code_digest: str
    data: DataFacts | None
    data_files: dict[str, str]
    lock: Lock


def inputs_of(project: Project, profile: Profile) -> Inputs:
    """Return the current inputs. Creates and sends nothing. Raises SyncError, StackError."""
    code = sync.scan(profile.code.path, ignore=code_ignored(profile), cache=project.cache).manifest
    present = all(each.source.exists() and not each.bucket for each in profile.data)
    data = [
        sync.scan(each.source, cache=project.cache, data=True).manifest for each in profile.data if present
    ]
    return Inputs(
        command=tuple(profile.train.command),
        code=_contents(code),
        code_digest=code.digest,
        data=facts_of(data) if present else None,
        data_files=contents_of(profile.data, data) if present else {},
        lock=read_lock(profile),
    )


def inputs_sent(profile: Profile, trees: Trees, lock: Lock) -> Inputs:
    """Return the inputs that were just sent."""
    command = tuple(profile.train.command)
    code = _contents(trees.code)
    return Inputs(command, code, trees.code.digest, trees.data, dict(trees.data_files), lock)


def keep_inputs(folder: Path, now: Inputs) -> None:
    """Store the file lists of code and data in the run's folder, so that a later difference can be named."""
    atomic_write(folder / _FILES, json.dumps(now.code, indent=0).encode())
    if now.data_files and len(now.data_files) <= _MOST_DATA:
        atomic_write(folder / _DATA, json.dumps(now.data_files, indent=0).encode())


def differences(record: RunRecord, now: Inputs) -> list[str]:
    """Return one phrase for each current input that differs from those of `record`.

    Inputs that were not recorded are skipped.
    """
    found = []
    if record.machine is None:
        found.append("it ran on this computer, not on a machine")
    if record.command is not None and tuple(record.command) != now.command:
        found.append(f"the command was {' '.join(record.command)} and is {' '.join(now.command)}")
    if record.code is not None and record.code["digest"] != now.code_digest:
        found.append(f"the code: {changed_code(record, now)}")
    if _is_other(record.data, now.data):
        assert record.data is not None and now.data is not None
        words = f"{_amount(record.data)} then, {_amount(now.data)} now"
        files = _changed_files(_kept(record.folder, _DATA), now.data_files) or "not the same bytes"
        found.append(f"the data: {words}, {files}")
    if record.stack is not None and record.stack.get("lock") not in (None, now.lock.digest):
        packages = _changed_packages(record.folder, now.lock)
        found.append(f"the lock of the packages: {packages}")
    return found


def _changed_packages(folder: Path, lock: Lock) -> str:
    found = packages_then_and_now(folder, lock)
    if found is None:
        return "the bytes of the file are others"
    return _listed(found) or "the same versions, other bytes"


def changed_code(record: RunRecord, now: Inputs) -> str:
    """Return the files in which the code differs from that of a record, the first ones by name."""
    before = _kept(record.folder, _FILES)
    if before is None:
        return "not the same files"
    return _changed_files(before, now.code) or "modes of files changed"


def _is_other(then: DataFacts | None, now: DataFacts | None) -> bool:
    """Return whether the data differ. False if the two digests are of different kinds and cannot be
    compared.
    """
    if then is None or now is None or then.get("streamed") != now.get("streamed"):
        return False
    return then["digest"] != now["digest"]


def _contents(code: Manifest) -> dict[str, str]:
    return {entry.path: entry.digest or entry.target or entry.kind for entry in code.entries}


def _kept(folder: Path, name: str) -> dict[str, str] | None:
    """Return the file list that `keep_inputs` wrote; None if it is missing or damaged. The difference is
    then reported without names.
    """
    try:
        return decoded(_Kept, regular_bytes(folder / name, LONG), most=LONG)
    except (OSError, Malformed):
        return None


def _changed_files(before: Mapping[str, str] | None, now: Mapping[str, str]) -> str:
    """Return what differs between two lists; "" if nothing does, or the first one was not kept."""
    if before is None:
        return ""
    changed = [f"{path} changed" for path in now if path in before and before[path] != now[path]]
    new = [f"{path} is new" for path in now if path not in before]
    gone = [f"{path} is gone" for path in before if path not in now]
    return _listed([*changed, *new, *gone])


def _listed(words: Sequence[str]) -> str:
    more = f", and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more


def _amount(data: DataFacts) -> str:
    return f"{counted(data.get('files') or 0, 'file')} of {counted(data.get('bytes') or 0, 'byte')}"
