"""Who works on a run, or uses a machine, now: file locks, which the kernel frees when their holder dies."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from orchestrator.api.folder import Folder
from orchestrator.model import Progress


class Turn:
    """The right to work on one run. It may be given back before its block ends, and taken again."""

    def __init__(self, handle: IO[str], waits: str, tell: Progress) -> None:
        self._handle = handle
        self._waits = waits
        self._tell = tell

    def take(self) -> None:
        """Wait for it, and say so where that is not at once."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._tell.say(self._waits)
            fcntl.flock(self._handle, fcntl.LOCK_EX)

    def give_back(self) -> None:
        fcntl.flock(self._handle, fcntl.LOCK_UN)


@contextmanager
def turn_of(place: Folder, run_id: str, tell: Progress) -> Iterator[Turn]:
    """One call at a time starts the run `run_id`, or brings it home. The next one finds what was done."""
    with _opened(place, f"run-{run_id}") as handle:
        turn = Turn(handle, f"Another orch works on {run_id} in this folder; waiting for it", tell)
        turn.take()
        yield turn


@contextmanager
def starting(place: Folder, lease: str, tell: Progress) -> Iterator[None]:
    """One call at a time starts a run on the machine of `lease`."""
    with _opened(place, f"start-{lease}") as handle:
        Turn(handle, "Another orch starts a run on this machine; waiting for it", tell).take()
        yield


@contextmanager
def in_use(place: Folder, name: str) -> Iterator[None]:
    """The machine of the profile `name` is used in the block: no `run` ends it meanwhile."""
    with _opened(place, f"use-{name}") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield


@contextmanager
def unused(place: Folder, name: str) -> Iterator[bool]:
    """Whether nobody uses the machine of the profile `name`; where that is so, whoever comes waits."""
    with _opened(place, f"use-{name}") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def _opened(place: Folder, name: str) -> Iterator[IO[str]]:
    place.ignore_runs()
    folder: Path = place.state / "turns"
    folder.mkdir(exist_ok=True)
    with open(folder / f"{name}.lock", "w") as handle:
        yield handle
