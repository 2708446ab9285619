"""Read what was observed of one attempt: its recording, and the writes of its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from orchestrator.model.answers import Malformed, Most, parsed, value
from orchestrator.model.files import first_bytes
from orchestrator.parity.recording import Recording

_MOST = 1 << 26


@dataclass(frozen=True)
class Event:
    """One line of the watch: a checkpoint, a write of one of its files, an epoch, or the kill."""

    event: str
    step: int = 0
    number: int = 0
    files: Annotated[tuple[str, ...], Most(1000)] = ()
    file: str = ""
    cycle: str = ""
    count: int = 0
    epoch: int = 0
    kinds: Annotated[tuple[str, ...], Most(1000)] = ()
    callbacks: Annotated[tuple[Mapping[str, Any], ...], Most(1000)] = ()
    what: str = ""


@dataclass(frozen=True)
class Attempt:
    """`code`: the exit status, negative for a signal. `files`: SHA-256 of the files that it left, by name."""

    code: int
    recording: Recording
    events: tuple[Event, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    said: tuple[str, ...] = ()

    @property
    def checkpoints(self) -> tuple[Event, ...]:
        """Return the checkpoints that were written between two steps, after the first step."""
        return tuple(each for each in self.events if each.event == "checkpoint" and each.step)

    @property
    def epochs(self) -> dict[int, Event]:
        """Return the epochs, by the number of steps that were complete when each began."""
        return {each.step: each for each in self.events if each.event == "epoch"}

    @property
    def was_killed(self) -> bool:
        return any(each.event == "killed" for each in self.events)


def read_events(log: Path) -> tuple[Event, ...]:
    """Return the complete lines of a watch's log. Lines that it cannot have written are skipped."""
    try:
        text = first_bytes(log, _MOST).decode("utf-8", "replace")
    except FileNotFoundError:
        return ()
    found = []
    for line in text.splitlines():
        try:
            found.append(value(Event, parsed(line.encode(), constants=True)))
        except Malformed:
            continue
    return tuple(found)
