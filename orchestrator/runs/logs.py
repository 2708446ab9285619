"""The output of a run with several attempts: one file, in order, with a separator line between two.

`runs/<id>/output.log` holds the output of all attempts, `runs/<id>/attempts/<n>/output.log` that of one. The
offset of the current attempt is computed from the logs of the archived attempts; it is not stored.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import FileRefused
from orchestrator.hosts.atomic import atomic_file
from orchestrator.model import RunRecord
from orchestrator.model.answers import Malformed
from orchestrator.model.files import last_bytes, open_regular
from orchestrator.model.plain import plain

LOG = "output.log"
_BLOCK = 1 << 18
"""Bytes of a log in memory at a time."""
_LONGEST_DETAIL = 300


def before(folder: Path) -> int:
    """Return the offset of the current attempt in the run's log, in bytes."""
    return sum(_size(own) + len(mark) for own, mark in _earlier(folder))


def last_mark(folder: Path) -> bytes:
    """Return the separator before the current attempt; b"" for a first attempt."""
    return next((mark for _, mark in reversed(list(_earlier(folder)))), b"")


def lay_earlier(folder: Path) -> None:
    """Start the run's log with the output of earlier attempts, unless it does already."""
    wanted = before(folder)
    if wanted and _size(folder / LOG) < wanted:
        with atomic_file(folder / LOG) as whole:
            _write_earlier(folder, whole)


def put_own(folder: Path, own: Path) -> None:
    """Put `own`, the whole output of the current attempt, at the end of the run's log.

    It is moved or removed.
    """
    if not before(folder):
        own.replace(folder / LOG)
        return
    with atomic_file(folder / LOG) as whole:
        _write_earlier(folder, whole)
        _copy(own, whole)
    own.unlink()


def own_size(folder: Path) -> int:
    """Return how many bytes of the current attempt's output are on this computer."""
    return max(0, _size(folder / LOG) - before(folder))


def set_aside(folder: Path, part: Path) -> None:
    """Move the current attempt's output to `part`, without what precedes it. Safe to repeat."""
    begun = before(folder)
    if begun and os.path.lexists(folder / LOG) and not (folder / LOG).is_dir():
        with atomic_file(part / LOG) as own:
            _copy(folder / LOG, own, begun)
        (folder / LOG).unlink()


def passed_on(log: Path, begin: int, output: Callable[[bytes], None], end: int | None = None) -> int:
    """Pass on the bytes from `begin` to `end` or to the end of the file, in blocks.

    Return the offset after the last byte. Raise FileRefused if the log is not a regular file.
    """
    with _opened(log) as file:
        size = file.seek(0, os.SEEK_END)
        end = size if end is None else min(end, size)
        at = file.seek(min(begin, size))
        while at < end and (block := file.read(min(_BLOCK, end - at))):
            output(block)
            at += len(block)
    return at


def _write_earlier(folder: Path, whole: BinaryIO) -> None:
    for own, mark in _earlier(folder):
        _copy(own, whole)
        whole.write(mark)


def _copy(source: Path, target: BinaryIO, begin: int = 0) -> None:
    """Copy a regular file from byte `begin` on; from other kinds of files, copy nothing."""
    with suppress(FileNotFoundError, Malformed), open_regular(source) as file:
        left = os.fstat(file.fileno()).st_size - begin
        file.seek(begin)
        while left > 0 and (block := file.read(min(left, _BLOCK))):
            target.write(block)
            left -= len(block)


def _earlier(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the log of each attempt that was set aside, and the separator after it."""
    from orchestrator.runs import earlier_attempts  # imported here: reading records imports this module

    for number, record in earlier_attempts.records(folder):
        own = folder / earlier_attempts.FOLDER / str(number) / LOG
        yield own, _mark(own, number, record)


def _mark(own: Path, number: int, record: RunRecord) -> bytes:
    detail = " ".join(plain(record.exit.get("detail") or "").split())[:_LONGEST_DETAIL]
    line = f"[orch] attempt {number} ended: {record.exit['reason']}. {detail}".rstrip()
    return (
        b"" if last_bytes(own, 1) in (b"", b"\n") else b"\n"
    ) + f"{line} Another attempt follows.\n".encode()


def _size(path: Path) -> int:
    """Return the size of a regular file; 0 if there is none."""
    with suppress(OSError):
        facts = path.lstat()
        return facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    return 0


def _opened(log: Path) -> BinaryIO:
    try:
        return open_regular(log)
    except Malformed as error:
        raise FileRefused(
            f"{log} is not a run's log: {error}. It was not read.",
            exists=f"The run's other files are in {log.parent}.",
            next_command=f"{shlex.join(['rm', '-r', str(log)])}    # then orch pull {log.parent.name}",
        ) from None
