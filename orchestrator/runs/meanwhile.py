"""Download files while a run continues: its checkpoints, and what it writes for TensorBoard."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from orchestrator.errors import LocalError, OrchError, SyncError
from orchestrator.model import Host
from orchestrator.runs import checkpoints, events
from orchestrator.session import connect as connecting
from orchestrator.session.session import Session

_EVERY_S = 5.0
_SELDOM_S = 15.0
"""Seconds between two looks if nothing is downloaded that the next attempt would need."""
_LAST_S = 60.0
"""Seconds to wait for what is being downloaded when the run ends."""


class _Look(Protocol):
    """One kind of files. `what`: the beginning of a message that they could not be downloaded."""

    what: str

    def look(self, host: Host) -> None: ...


@contextlib.contextmanager
def brought_meanwhile(session: Session, run_id: str) -> Iterator[Callable[[], None]]:
    """Download new files during the block, over a connection of its own.

    They are downloaded a last time at the end, unless the yielded function was called: for a completed run,
    the results contain them.
    """
    bringing = _Bringing(session, run_id)
    bringing.start()
    try:
        yield bringing.forgo
    except BaseException:
        bringing.forgo()
        raise
    finally:
        bringing.stop()


class _Bringing(threading.Thread):
    """The thread that downloads. It never fails: what cannot be downloaded is tried again later, or stays
    on the machine.
    """

    def __init__(self, session: Session, run_id: str) -> None:
        super().__init__(name="meanwhile", daemon=True)
        self._session = session
        self._run_id = run_id
        self._looks: list[_Look] = [events.Written(session, run_id)]
        self._every = _SELDOM_S
        if session.profile.train.checkpoints:
            self._looks.insert(0, checkpoints.Copies(session, run_id))
            self._every = _EVERY_S
        self._host: Host | None = None
        self._ends = threading.Event()
        self._told: set[str] = set()
        self._last = bool(session.profile.train.checkpoints)
        """Whether there may be more at the end; False for a run too short for a first look."""
        self._forgone = False

    def run(self) -> None:
        try:
            while not self._ends.wait(self._every):
                self._last = True
                self._look()
            if self._last and not self._forgone:
                self._look()
        finally:
            self._close()

    def forgo(self) -> None:
        self._forgone = True

    def stop(self) -> None:
        self._ends.set()
        self.join(_LAST_S)

    def _look(self) -> None:
        for each in self._looks:
            try:
                self._host = self._host or self._connected()
                if self._host is not None:
                    each.look(self._host)
            except (LocalError, SyncError, OSError) as error:
                self._close()
                self._tell(each.what, error)
            except OrchError:
                self._close()

    def _tell(self, what: str, error: Exception) -> None:
        if what not in self._told:
            self._told.add(what)
            self._session.progress.say(f"{what} of {self._run_id} could not be downloaded: {error}")

    def _connected(self) -> Host | None:
        session = self._session
        endpoint = session.provider.endpoint(session.machine)
        if not endpoint:
            return None
        return connecting.connect(session.project, session.ledger.lease(), session.machine, endpoint)

    def _close(self) -> None:
        if self._host is not None:
            self._host.close()
            self._host = None
