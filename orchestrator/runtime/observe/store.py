"""The files of a recording: one index, one folder of tensors, two small files of facts."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from pathlib import Path
from typing import Any, Dict, List, Tuple

from .digest import describe, sample, storable
from .settings import FORMAT, MAX_REPLAYED, MAX_TENSOR, MAX_TOTAL


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file that appears with all of `content` or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)


def write_json(path: Path, value: Dict[str, Any]) -> None:
    """Like `atomic_write`, for JSON with sorted keys and one trailing newline."""
    atomic_write(path, (json.dumps(value, sort_keys=True, indent=1) + "\n").encode())


class Store:
    """The files of one recording. Tensors are named by their content, so equal ones are stored once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._kept = 0
        self._replayed = 0

    def claim(self) -> bool:
        """Whether this process is the first to record here; only the first may."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(self.directory / "claim", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w") as file:
            file.write(f"{os.getpid()}\n")
        return True

    def keep(self, array: Any, *, replayed: bool = False) -> Dict[str, Any]:
        """Return the array's facts; write a copy, or beyond the budget a sample, under tensors/.

        `replayed`: it may be imposed on another run, which needs a complete copy and has its own budget.
        """
        facts = describe(array)
        if array.dtype.hasobject or array.dtype.kind in "SU" or not array.size:
            return facts
        if replayed and self._replayed + array.nbytes <= MAX_REPLAYED:
            facts["file"], written = self._put(facts["sha256"][:32], storable(array))
            self._replayed += written
            return facts
        if array.nbytes <= MAX_TENSOR and self._kept + array.nbytes <= MAX_TOTAL:
            facts["file"], written = self._put(facts["sha256"][:32], storable(array))
            self._kept += written
            return facts
        stride, values = sample(array)
        file, written = self._put(f"{facts['sha256'][:32]}.sample", storable(values))
        self._kept += written
        return {**facts, "sample": {"file": file, "stride": stride}}

    def _put(self, name: str, array: Any) -> Tuple[str, int]:
        """Write an array; returns its file's name, and the bytes written, 0 if the file existed."""
        relative = f"tensors/{name}.npy"
        path = self.directory / relative
        if path.exists():
            return relative, 0
        atomic_write(path, npy(array))
        return relative, int(array.nbytes)

    def append(self, lines: List[Dict[str, Any]]) -> None:
        """Add lines to the index in a single write, so that a killed process leaves complete lines."""
        if not lines:
            return
        content = "".join(json.dumps({"v": FORMAT, **line}, sort_keys=True) + "\n" for line in lines)
        handle = os.open(self.directory / "steps.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, content.encode())
        finally:
            os.close(handle)

    def facts(self, name: str, value: Dict[str, Any]) -> None:
        """Write <name>.json atomically. Errors such as a full disk are ignored, because they must not end the
        job."""
        with contextlib.suppress(OSError):
            write_json(self.directory / f"{name}.json", {"v": FORMAT, **value})

    def stopped(self, steps: int) -> None:
        """Record that this process, named by its id, ended itself after `steps` observed steps."""
        atomic_write(self.directory / "stopped", f"{steps} {os.getpid()}\n".encode())


def npy(array: Any) -> bytes:
    """Return the array as a version 1.0 .npy file in C order."""
    header = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {tuple(array.shape)!r}, }}"
    padded = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    magic = b"\x93NUMPY\x01\x00"
    return bytes(magic + struct.pack("<H", len(padded)) + padded + array.tobytes())
