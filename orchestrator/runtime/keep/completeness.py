"""Whether files of checkpoints are complete: what each format and each writer leaves at the end of a save.

A set of files is a checkpoint only together, so the sets that known writers make are judged as sets:

- Keras' BackupAndRestore writes `latest.weights.h5` and then `training_metadata.json` (keras 3,
  src/callbacks/backup_and_restore.py, `_save_model`): the second is older while a save goes on.
- TensorFlow writes shards and their index under names of its own (`<prefix>_temp/…`, `….tempstate…`), gives
  `<prefix>.data-*-of-*` their names, then writes `<prefix>.index`, and names the prefix in `checkpoint` last
  (tensorflow, core/util/tensor_bundle, `MergeBundles`; python/checkpoint/checkpoint_management.py,
  `update_checkpoint_state`). An index that is older than its shards is that of an earlier save.
- A SavedModel has its variables before its `saved_model.pb` (tensorflow, python/saved_model/save.py,
  `save_and_return_nodes`).
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH118, PTH119, PTH120

from __future__ import annotations

import json
import os
import re
import struct
from typing import BinaryIO, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from ..rundir import open_plain

_HEADER_MOST = 100 << 20
_ZIP_TAIL = 66_000
"""Maximum bytes of the record at the end of a zip file, including the longest comment."""

_PICKLE, _PROTOCOLS = 0x80, range(2, 6)
"""A pickle begins with PROTO and its version, and ends with STOP, "." (Python, Lib/pickletools.py)."""

_SHARD = re.compile(r"(?P<prefix>.+)\.data-\d{5}-of-(?P<count>\d{5})")
_STATE = re.compile(r'^\s*model_checkpoint_path:\s*"(?P<path>(?:[^"\\]|\\.)*)"', re.MULTILINE)
_METADATA = "training_metadata.json"
_WEIGHTS = "latest.weights.h5"
_GROWS = re.compile(r".*(\.tfevents\..*|\.log|\.csv|\.jsonl|\.txt|\.out|\.err)")

_PASSING = re.compile(
    r".*(_temp/part-\d{5}-of-\d{5}\.[^/]+|\.tempstate\d+|\.orbax-checkpoint-tmp[^/]*(/.*)?)"
)

Stamp = Tuple[int, int, int, int]
"""Size, mtime and ctime in ns, inode."""


def grows(path: str) -> bool:
    """Whether a program appends to a file of this name for as long as it runs, as to a log."""
    return _GROWS.fullmatch(os.path.basename(path)) is not None


def passes(path: str) -> bool:
    """Whether a file of this name exists only during a save, or was left by one that was interrupted."""
    return _PASSING.fullmatch(path) is not None


def tells_its_end(top: str, path: str) -> bool:
    """Whether an incomplete file can be recognised: by its format, or because its writer renames it."""
    name = os.path.basename(path)
    if name in (_METADATA, "checkpoint", "saved_model.pb") or name.endswith((".index", ".safetensors")):
        return True
    if _SHARD.fullmatch(name):
        return True
    try:
        with os.fdopen(open_plain(os.path.join(top, path)), "rb") as file:
            return file.read(8).startswith((b"PK\x03\x04", b"\x89HDF\r\n\x1a\n"))
    except OSError:
        return False


def unfinished(top: str, files: Mapping[str, Stamp]) -> Optional[str]:
    """Return the first file, relative to `top`, that is incomplete, or not yet of the same save as its
    siblings.
    """
    for path in files:
        check = _check_of(path)
        if check is not None and not _holds(os.path.join(top, path), check):
            return path
    return next(_of_sets(top, files), None)


# ---------------------------------------------------------------- one file


def _check_of(path: str) -> Optional[Callable[[BinaryIO, int], bool]]:
    lower = path.lower()
    for endings, check in _CHECKS.items():
        if lower.endswith(endings):
            return check
    return None


def _holds(path: str, check: Callable[[BinaryIO, int], bool]) -> bool:
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            return check(file, os.fstat(file.fileno()).st_size)
    except (OSError, ValueError, struct.error):
        return False


def _container(file: BinaryIO, size: int) -> bool:
    """Check a zip, HDF5 or pickle file by its first bytes; any other file only must not be empty."""
    head = file.read(96)
    if head.startswith(b"PK\x03\x04"):
        return _zip(file, size)
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return _hdf5(head, size)
    if len(head) > 1 and head[0] == _PICKLE and head[1] in _PROTOCOLS:
        file.seek(size - 1)
        return file.read() == b"."
    return size > 0


def _zip(file: BinaryIO, size: int) -> bool:
    """Check the end record, which a writer adds last."""
    file.seek(max(0, size - _ZIP_TAIL))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    return at >= 0 and at + 22 + struct.unpack_from("<H", tail, at + 20)[0] == len(tail)


def _hdf5(head: bytes, size: int) -> bool:
    """Check the end-of-file address of the superblock, which is updated when the file is closed.

    HDF5 File Format Specification 3.0, "Disk Format: Level 0A": it follows two addresses, which begin at byte
    24, 28 or 12 by the superblock's version.
    """
    version = head[8]
    width, start = (head[13], 24 + 4 * version) if version < 2 else (head[9], 12)
    place = start + 2 * width
    return int.from_bytes(head[place : place + width], "little") == size


def _safetensors(file: BinaryIO, size: int) -> bool:
    length = struct.unpack("<Q", file.read(8))[0]
    if not 2 <= length <= min(size, _HEADER_MOST):
        return False
    header = json.loads(file.read(length))
    ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
    return 8 + int(length) + int(max(ends, default=0)) == size


def _metadata(file: BinaryIO, size: int) -> bool:
    return size <= _HEADER_MOST and isinstance(json.loads(file.read()), dict)


_CONTAINERS = tuple(
    ".keras .h5 .hdf5 .npz .npy .pt .pth .zip .index .pb .pkl .pickle .joblib .ckpt .bin".split()  # noqa: SIM905
)
_CHECKS: Dict[Tuple[str, ...], Callable[[BinaryIO, int], bool]] = {
    (_METADATA,): _metadata,
    (".safetensors",): _safetensors,
    _CONTAINERS: _container,
}


# ---------------------------------------------------------------- sets of files


def _of_sets(top: str, files: Mapping[str, Stamp]) -> Iterator[str]:
    names = set(files)
    yield from _backups(files)
    yield from _shards(files)
    yield from _saved_models(files)
    for path in names:
        if os.path.basename(path) == "checkpoint":
            yield from _named_by_state(top, path, names)


def _backups(files: Mapping[str, Stamp]) -> Iterator[str]:
    """Find weights that are newer than the file that names their epoch."""
    for path, stamp in files.items():
        if os.path.basename(path) == _WEIGHTS:
            told = os.path.join(os.path.dirname(path), _METADATA)
            if told not in files or files[told][1] < stamp[1]:
                yield path


def _saved_models(files: Mapping[str, Stamp]) -> Iterator[str]:
    """Find variables that are newer than the graph beside them, or have none."""
    for path, stamp in files.items():
        folder, name = os.path.split(path)
        top = os.path.dirname(folder)
        if name == "variables.index" and os.path.basename(folder) == "variables":
            graph = files.get(os.path.join(top, "saved_model.pb"))
            if graph is None or graph[1] < stamp[1]:
                yield path


def _shards(files: Mapping[str, Stamp]) -> Iterator[str]:
    """Find shards without their siblings, or whose index is missing or older."""
    found: Dict[Tuple[str, str], List[str]] = {}
    for path in files:
        shard = _SHARD.fullmatch(path)
        if shard is not None:
            found.setdefault((shard["prefix"], shard["count"]), []).append(path)
    for (prefix, count), shards in found.items():
        index = files.get(f"{prefix}.index")
        newest = max(files[path][1] for path in shards)
        if len(shards) != int(count) or index is None or index[1] < newest:
            yield shards[0]


def _named_by_state(top: str, path: str, names: "set[str]") -> Iterator[str]:
    """Find a state file whose checkpoint is missing."""
    try:
        with os.fdopen(open_plain(os.path.join(top, path)), "rb") as file:
            text = file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        yield path
        return
    state = _STATE.search(text)
    if state is None:
        return  # a file of that name that another program wrote
    named = os.path.join(os.path.dirname(path), os.path.basename(state["path"]))
    if f"{named}.index" not in names:
        yield path
