"""The file of a ledger: one JSON object a line, fsynced, never rewritten.

A line is {"v", "seq", "time", "tick", "event", ..., "crc"}; in a team's ledger it also has "by" and "nonce".
`crc` is the CRC-32 of the object without it. Lines that cannot be read (a torn line, zeros after a power
loss, conflict markers of a merge) are skipped and kept.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.ledger import clock
from orchestrator.ledger.clock import Tick, tick_of

VERSION = 1

_OURS = ("v", "seq", "time", "tick", "event", "by", "nonce", "crc")
_PADDING = b"\0 \t\r\n"
_LATEST = 1e11  # seconds since 1970; later times are invalid


@dataclass(frozen=True)
class Event:
    """One line. `data`: the fields of the event besides its sequence number and time (Unix seconds).

    `tick`: the same moment by the clock that cannot be set; None if there is none. `by`: the client that
    wrote the line, in a team's ledger.
    """

    seq: int
    time: float
    event: str
    data: Mapping[str, Any] = field(default_factory=dict)
    tick: Tick | None = None
    by: str = ""


@dataclass(frozen=True)
class Contents:
    """The content of a ledger's file.

    `skipped`: complete lines that cannot be read. `newer`: the highest version above ours; None if there is
    none. `problem`: why the file or store could not be read; "" if it could.
    """

    events: tuple[Event, ...] = ()
    skipped: int = 0
    newer: int | None = None
    problem: str = ""

    @property
    def whole(self) -> bool:
        return not (self.skipped or self.newer or self.problem)


class Journal:
    """The file. Every append is flushed to the disk before it returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: str, **data: Any) -> None:
        """Write one line after all that are there.

        Raise OSError if the line cannot be written, and UsageError if a later version of orch wrote the file.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as handle:
            text = os.pread(handle, os.fstat(handle).st_size, 0)
            _write(handle, next_line(text, self.path, event, data))
            os.fsync(handle)

    def contents(self) -> Contents:
        try:
            return parse(self.path.read_bytes())
        except FileNotFoundError:
            return Contents()
        except OSError as error:
            return Contents(problem=error.strerror or str(error))

    def events(self) -> list[Event]:
        """Return every line that can be read, in order."""
        return list(self.contents().events)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)


def next_line(text: bytes, path: Path, event: str, data: Mapping[str, Any]) -> bytes:
    """Return the bytes to append to `text`, the content of a ledger. Raise UsageError if a later version
    wrote it.
    """
    known = parse(text)
    if known.newer:
        raise _refusal(path, known.newer)
    seq = max((one.seq for one in known.events), default=-1) + 1
    start = b"" if not text or text.endswith(b"\n") else b"\n"  # a torn line remains a line of its own
    head = {"v": VERSION, "seq": seq, "time": _now(), **clock.as_json(clock.tick()), "event": event}
    return start + _line({**head, **data})


def parse(text: bytes) -> Contents:
    """Parse all events that can be read from a ledger's bytes. Never raises."""
    *lines, torn = text.split(b"\n")
    read = [_record(line.strip(_PADDING)) for line in lines if line.strip(_PADDING)]
    last = _record(torn.strip(_PADDING)) if torn.strip(_PADDING) else None
    records = [record for record in (*read, last) if record is not None]
    newest = max((record["v"] for record in records), default=VERSION)
    return Contents(
        events=tuple(_event(record) for record in records),
        skipped=sum(record is None for record in read) + (torn.count(b"\0") > 0 and last is None),
        newer=newest if newest > VERSION else None,
    )


def _record(line: bytes) -> dict[str, Any] | None:
    """Return the object of one line; None if it is not an event, or its checksum does not match."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        return None
    if not all(_is_whole_number(record.get(name)) for name in ("v", "seq")) or not is_time(
        record.get("time")
    ):
        return None
    crc = record.pop("crc", None)
    return record if crc is None or _is_intact(line, record, crc) else None


def _is_intact(line: bytes, record: Mapping[str, Any], crc: object) -> bool:
    """Return whether a checksum is that of the line without it. The line as it is written is checked first,
    because writing it anew takes longer than everything else.
    """
    if isinstance(crc, int) and zlib.crc32(line.replace(b'"crc": %d, ' % crc, b"", 1)) == crc:
        return True
    return crc == _crc(record)


def _event(record: Mapping[str, Any]) -> Event:
    data = {key: value for key, value in record.items() if key not in _OURS}
    by = record["by"] if isinstance(record.get("by"), str) else ""
    return Event(record["seq"], record["time"], record["event"], data, tick_of(record.get("tick")), by)


def is_time(value: object) -> bool:
    """Return whether a value can be Unix seconds."""
    return is_number(value) and 0 <= float(value) < _LATEST  # type: ignore[arg-type]


def is_number(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _line(record: Mapping[str, Any]) -> bytes:
    plain = json.loads(_text(record))  # as it will be read: tuples are lists, keys are text
    return _text({**plain, "crc": _crc(plain)}) + b"\n"


def _text(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True).encode()


def _crc(record: Mapping[str, Any]) -> int:
    return zlib.crc32(_text(record))


def _write(handle: int, text: bytes) -> None:
    """Write all of `text`, or raise OSError: a disk that fills up writes only a part at first."""
    while text:
        text = text[os.write(handle, text) :]


def _refusal(path: Path, newer: int) -> UsageError:
    return UsageError(
        f"{path} was written by version {newer} of the ledger; this orch writes version {VERSION}, so it "
        "did not change the file.",
        exists="A machine of this lease may still exist; orch down deletes it.",
        next_command="pip install --upgrade orch-train    # or, to end the machine: orch down",
    )


def _now() -> float:
    return datetime.now(UTC).timestamp()
