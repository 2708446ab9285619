"""Follow a run's output over an unreliable connection: every byte once, from the bookmark on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TypeVar

from orchestrator import jobs
from orchestrator.errors import HostError, HostKeyError, LocalError, MalformedAnswer, StorageError
from orchestrator.ledger import Ledger
from orchestrator.ledger.events import RunBegan, RunEnded, RunQueued
from orchestrator.model import Exit, MachineState, RunState
from orchestrator.model.answers import Malformed
from orchestrator.model.files import open_to_write
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import notice
from orchestrator.runs import logs
from orchestrator.runs.background_download import downloading
from orchestrator.runs.bookmarks import Bookmark, bookmark_of
from orchestrator.runs.collect import LOG
from orchestrator.session.connect import connect, is_answering
from orchestrator.session.session import Session

T = TypeVar("T")

_RECONNECT_SECONDS = 600.0
_TRIES = 4
"""Failures in a row, of a machine that answers, after which following stops. Progress, or a few minutes,
reset the count.
"""
_LONG_AGO = 60.0
_ANSWER_SECONDS = 10.0
"""Seconds of one attempt to reconnect. Then the provider is asked whether the machine exists: a preempted one
does not answer.
"""

_PAUSE_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)


def bookmark(session: Session, run_id: str) -> Bookmark:
    return bookmark_of(session.ledger, run_id)


def follow_to_end(session: Session, run_id: str, output: Callable[[bytes], None] | None) -> Exit | None:
    """Pass on the run's output from the bookmark until it ends; None if the machine was lost.

    All output is also kept in `runs/<id>/output.log`, whatever happens to the machine. A broken connection is
    restored for ten minutes; the run is not affected. An interrupt leaves the bookmark after the last byte
    that was shown.
    """
    mark = bookmark(session, run_id)

    folder = session.project.run(run_id)
    with LocalLog(folder / LOG) as kept, downloading(session, run_id) as download:

        def show(data: bytes) -> None:
            with _interrupt_later():
                new = kept.add(data, shown=mark.offset)
                download.printed(new)
                if output and new:
                    output(new)
                mark.advance(len(new))

        def rest() -> RunState:
            while True:
                before = kept.offset
                try:
                    jobs.follow(session.host, session.agent, run_id, before, show)
                except jobs.OutputShrank as shrank:
                    return _end_unseen(session, run_id, shrank)
                state = jobs.state(session.host, session.agent, run_id)
                if not state.active:
                    return state
                if kept.offset == before:
                    time.sleep(_PAUSE_SECONDS[0])

        try:
            kept.begin(mark.offset)
            if output and not mark.offset and (line := logs.last_mark(folder)):
                output(line)
            ended = reconnecting(session, rest, advanced=lambda: kept.offset)
            if ended and ended.exit and ended.exit.reason == ExitReason.COMPLETED:
                download.skip_last()
            end = ended.exit if ended else None
            if end:
                note_seen(session, run_id, end)
            return end
        finally:
            mark.save()


def say_if_queued(session: Session, run_id: str) -> None:
    """Say that a run prints nothing yet, because it waits for other runs."""
    run = session.ledger.lease().runs.get(run_id)
    if run is None or not run.waits or jobs.state(session.host, session.agent, run_id).state != "queued":
        return
    where = session.machine.id
    notice(session.progress, f"{run_id} is queued: it begins when the runs before it on {where} have ended")


def note_place(ledger: Ledger, run_id: str, state: RunState) -> None:
    """Record in the ledger that a run was seen in its machine's queue, or to have begun after that."""
    run = ledger.lease().runs[run_id]
    if state.state == "queued" and not run.queued:
        ledger.record(RunQueued(run_id))
    elif state.started_at and run.waits:
        ledger.record(RunBegan(run_id))


def note_end(session: Session, run_id: str, end: Exit | None) -> None:
    """Record in the ledger that a run was seen to end; `end` is None if its machine was lost."""
    run = session.ledger.lease().runs.get(run_id)
    if run is not None and run.exit_reason is None:
        session.ledger.record(RunEnded(run_id, end.reason if end else ExitReason.LOST))


def note_seen(session: Session, run_id: str, end: Exit) -> None:
    """Record like `note_end`; a failure is ignored, because the run's output was shown already."""
    with suppress(OSError, LocalError, StorageError):
        note_end(session, run_id, end)


def _end_unseen(session: Session, run_id: str, shrank: jobs.OutputShrank) -> RunState:
    """Wait for the end of a run whose output cannot be followed any more."""
    notice(session.progress, f"{shrank.message} Waiting for the end of the run without showing its output.")
    while (state := jobs.state(session.host, session.agent, run_id)).active:
        time.sleep(_PAUSE_SECONDS[1])
    return state


KEPT_MOST = 1 << 30
"""Bytes of output that are kept while a run is followed. All of it is downloaded at its end."""


class LocalLog:
    """The local copy of a run's output: bytes at their original offset, after the output of earlier attempts.

    Two followers may write at once: they write the same bytes to the same place. A full disk ends the copy
    but not the following, and so does anything but a regular file in its place.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._before = 0
        self.offset = 0

    def __enter__(self) -> LocalLog:
        with suppress(OSError, Malformed):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            logs.lay_earlier(self._path.parent)
            self._before = logs.before(self._path.parent)
            self._file = open_to_write(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)

    def begin(self, shown: int) -> None:
        """Continue from what was shown, or from what was kept if that is less."""
        self.offset = shown if self._file is None else min(shown, self._here())

    def _here(self) -> int:
        assert self._file is not None
        return max(0, os.fstat(self._file).st_size - self._before)

    def add(self, data: bytes, shown: int) -> bytes:
        """Keep `data`, the next bytes, and return those of them that are not before offset `shown`."""
        if self._file is not None:
            self._write(data)
        before, self.offset = self.offset, self.offset + len(data)
        return data[max(0, shown - before) :]

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        at, left = self.offset, memoryview(data)[: max(0, KEPT_MOST - self.offset)]
        try:
            while left:
                count = os.pwrite(self._file, left, self._before + at)
                at, left = at + count, left[count:]
        except OSError:
            os.close(self._file)
            self._file = None


_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Delay an interrupt until the block ends, so that exactly what was shown is counted.

    A second one is not delayed, because showing may block on a paused terminal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    usual = {number: handler for number in _INTERRUPTS if callable(handler := signal.getsignal(number))}

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            usual[signal.Signals(number)](number, frame)

    for number in usual:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def reconnecting(session: Session, act: Callable[[], T], *, advanced: Callable[[], int] = int) -> T | None:
    """Return the result of `act`, which is repeated if its connection broke; None if the machine was lost.

    `act` must be repeatable; `advanced` grows with its progress. If the machine answers and `act` still fails
    without progress, the last HostError is raised.
    """
    done, tries, failed_at = advanced(), 0, time.monotonic()
    while True:
        try:
            return act()
        except (HostKeyError, MalformedAnswer):
            raise
        except HostError as lost:
            anew = advanced() != done or time.monotonic() - failed_at > _LONG_AGO
            done, tries, failed_at = advanced(), 1 if anew else tries + 1, time.monotonic()
            if tries > _TRIES:
                raise
            if is_answering(session.host):
                time.sleep(_PAUSE_SECONDS[0])
            elif not _reconnect(session, lost):
                return None


def _reconnect(session: Session, lost: HostError) -> bool:
    """Replace the broken connection; return False if the machine does not exist any more."""
    limit = time.monotonic() + _RECONNECT_SECONDS
    for count in range(10_000):
        time.sleep(_PAUSE_SECONDS[min(count, len(_PAUSE_SECONDS) - 1)])
        machine = session.provider.find(session.machine)
        if machine is None or machine.state is not MachineState.RUNNING:
            return False
        notice(session.progress, "The connection broke; reconnecting (the run continues)")
        if _connected(session):
            return True
        if time.monotonic() > limit:
            break
    raise HostError(
        f"Contact with {session.machine.id} was lost: {lost.message}",
        exists=f"The machine is still running, at ${session.machine.price:.2f}/h, until its deadline.",
        next_command="orch logs -f",
    ) from lost


def _connected(session: Session) -> bool:
    lease = session.ledger.lease()
    endpoint = session.provider.endpoint(session.machine)
    if not endpoint:
        return False
    try:
        fresh = connect(session.project, lease, session.machine, endpoint, timeout=_ANSWER_SECONDS)
    except HostKeyError:
        raise
    except HostError:
        return False
    session.host.close()
    session.host = fresh
    return True
