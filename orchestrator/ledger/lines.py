"""The lines of a ledger: one JSON object each.

A line is {"v", "seq", "time", "tick", "event", ..., "crc"}; in a team's ledger it also has "by" and "nonce".
`crc` is the CRC-32 of the object without it. Lines that cannot be read (a torn line, zeros after a power
loss, conflict markers of a merge) are skipped and kept.
"""

from __future__ import annotations

import gc
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.errors import UsageError
from orchestrator.ledger import clock
from orchestrator.ledger.clock import Tick, tick_of

VERSION = 1

_OURS = ("v", "seq", "time", "tick", "event", "by", "nonce")
_PADDING = b"\0 \t\r\n"
_LATEST = 1e11  # seconds since 1970; later times are invalid
_JSON = json.JSONDecoder()


class Event(NamedTuple):
    """One line. `data`: the fields of the event besides its sequence number and time (Unix seconds).

    `tick`: the same moment by the clock that cannot be set; None if there is none. `by`: the client that
    wrote the line, in a team's ledger.
    """

    seq: int
    time: float
    event: str
    data: Mapping[str, Any]
    tick: Tick | None = None
    by: str = ""


@dataclass(frozen=True)
class Contents:
    """The content of a ledger's file.

    `skipped`: complete lines that cannot be read. `newer`: the highest version above ours; None if there is
    none. `last`: the highest sequence number; -1 if there is none. `problem`: why the file or store could not
    be read; "" if it could.
    """

    events: tuple[Event, ...] = ()
    skipped: int = 0
    newer: int | None = None
    last: int = -1
    problem: str = ""

    @property
    def whole(self) -> bool:
        return not (self.skipped or self.newer or self.problem)


@dataclass(frozen=True)
class _Known:
    """What the complete lines of `text` hold. `newest`: their highest version; `last`: their highest
    sequence number.
    """

    text: bytes = b""
    events: tuple[Event, ...] = ()
    skipped: int = 0
    newest: int = VERSION
    last: int = -1


class Reader:
    """Parse the bytes of one ledger. Complete lines that were parsed before are not parsed again, as long as
    the ledger still begins with them.
    """

    def __init__(self) -> None:
        self._known = _Known()

    def contents(self, text: bytes) -> Contents:
        """Return all events that can be read. Never raises."""
        known = self._known  # read once: another thread may replace it
        if not text.startswith(known.text):
            known = _Known()
        end = text.rfind(b"\n") + 1
        if end > len(known.text):
            with collection_paused():
                known = self._known = _extended(known, text[:end])
        torn = text[end:].strip(_PADDING)
        last = _known([_read(torn)] if torn else [])
        newest = max(known.newest, last.newest)
        return Contents(
            events=known.events + last.events,
            skipped=known.skipped + (not last.events and b"\0" in text[end:]),
            newer=newest if newest > VERSION else None,
            last=max(known.last, last.last),
        )


def parse(text: bytes) -> Contents:
    """Parse all events that can be read from a ledger's bytes. Never raises."""
    return Reader().contents(text)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the search for cycles of garbage. It would go through everything that was made so far, again and
    again, and find nothing: with many events that takes longer than reading them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def next_line(text: bytes, known: Contents, path: Path, event: str, data: Mapping[str, Any]) -> bytes:
    """Return the bytes to append to `text`, the content of a ledger, that holds what `known` says. Raise
    UsageError if a later version wrote it.
    """
    if known.newer:
        raise _refusal(path, known.newer)
    start = b"" if not text or text.endswith(b"\n") else b"\n"  # a torn line remains a line of its own
    head = {
        "v": VERSION,
        "seq": known.last + 1,
        "time": _now(),
        **clock.as_json(clock.tick()),
        "event": event,
    }
    return start + line_of({**head, **data})


def _extended(known: _Known, text: bytes) -> _Known:
    """Return `known` with the lines that `text` has after those of `known`."""
    lines = [line.strip(_PADDING) for line in text[len(known.text) :].split(b"\n")]
    new = _known([_read(line) for line in lines if line])
    return _Known(
        text,
        known.events + new.events,
        known.skipped + new.skipped,
        max(known.newest, new.newest),
        max(known.last, new.last),
    )


def _known(read: Sequence[tuple[int, Event] | None]) -> _Known:
    """Return what lines hold that were read."""
    records = [record for record in read if record is not None]
    return _Known(
        events=tuple(event for _, event in records),
        skipped=len(read) - len(records),
        newest=max((version for version, _ in records), default=VERSION),
        last=max((event.seq for _, event in records), default=-1),
    )


def _read(line: bytes) -> tuple[int, Event] | None:
    """Return the version and event of one line; None if it is no event, or its checksum does not match."""
    record = _object(line)
    if record is None:
        return None
    get: Callable[[str], Any] = record.get
    kind, version, seq, time = get("event"), get("v"), get("seq"), get("time")
    if type(kind) is not str or not (_is_whole_number(version) and _is_whole_number(seq) and _is_time(time)):
        return None
    crc = record.pop("crc", None)
    if crc is not None and not _is_intact(line, record, crc):
        return None
    tick, by = get("tick"), get("by")
    for name in _OURS:
        record.pop(name, None)
    return version, Event(seq, time, kind, record, tick_of(tick), by if type(by) is str else "")


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a line, or None. A line as it is written takes the shorter way."""
    try:
        text = line.decode("ascii")
        found, end = _JSON.raw_decode(text)
        if end != len(text):
            return None
    except UnicodeDecodeError:
        found = _foreign(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _foreign(line: bytes) -> Any:
    """Return the JSON value of a line that another program wrote, or None."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_intact(line: bytes, record: Mapping[str, Any], crc: object) -> bool:
    """Return whether a checksum is that of the line without it. The line as it is written is checked first,
    because writing it anew takes longer than everything else.
    """
    if isinstance(crc, int) and zlib.crc32(line.replace(b'"crc": %d, ' % crc, b"", 1)) == crc:
        return True
    return crc == _crc(record)


def _is_time(value: Any) -> bool:
    """Return whether a value can be Unix seconds."""
    return type(value) in (float, int) and 0 <= value < _LATEST


def _is_whole_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def line_of(record: Mapping[str, Any]) -> bytes:
    """Return the line of an object, with its checksum."""
    plain = json.loads(_text(record))  # as it will be read: tuples are lists, keys are text
    return _text({**plain, "crc": _crc(plain)}) + b"\n"


def _text(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True).encode()


def _crc(record: Mapping[str, Any]) -> int:
    return zlib.crc32(_text(record))


def _refusal(path: Path, newer: int) -> UsageError:
    return UsageError(
        f"{path} was written by version {newer} of the ledger; this orch writes version {VERSION}, so it "
        "did not change the file.",
        exists="A machine of this lease may still exist; orch down deletes it.",
        next_command="pip install --upgrade orch-train    # or, to end the machine: orch down",
    )


def _now() -> float:
    return datetime.now(UTC).timestamp()
