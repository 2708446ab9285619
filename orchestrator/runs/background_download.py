"""Download checkpoints and TensorBoard files while a run continues, and report its pace (steps, epoch,
metrics, cost).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.errors import LocalError, OrchError, SyncError
from orchestrator.model import Host
from orchestrator.model.progress import Watching, notice
from orchestrator.runs import checkpoints, events
from orchestrator.session import connect as connecting
from orchestrator.session.session import Session

if TYPE_CHECKING:
    from orchestrator.runs.mlflow_live import Live
    from orchestrator.runs.pace import Paced

_EVERY_S = 5.0
_SELDOM_S = 15.0
"""Seconds between two polls if nothing is downloaded that the next attempt would need."""
_LAST_S = 60.0
"""Seconds to wait for what is being downloaded when the run ends."""


class _Poller(Protocol):
    """Downloads one kind of files. `what`: their name at the beginning of an error message."""

    @property
    def what(self) -> str: ...

    def poll(self, host: Host) -> None: ...


@dataclass
class _Timed:
    """A poller, the seconds from one poll to the next, and when the next is due by time.monotonic()."""

    poller: _Poller
    every_s: float
    due: float = 0.0

    def __post_init__(self) -> None:
        self.postpone()

    def postpone(self) -> None:
        self.due = time.monotonic() + self.every_s


def _pace(session: Session, run_id: str, watching: Watching) -> Paced:
    from orchestrator.runs.pace import Paced

    return Paced(session, run_id, watching)


def _logged(session: Session, run_id: str) -> Live | None:
    if session.profile.mlflow.uri is None and "MLFLOW_TRACKING_URI" not in os.environ:
        return None
    from orchestrator.runs.mlflow_live import live

    known = session.ledger.lease().runs.get(run_id)
    return live(session.project, session.profile, run_id, known.attempt if known else 1)


@contextlib.contextmanager
def downloading(session: Session, run_id: str) -> Iterator[BackgroundDownload]:
    """Download new files during the block, over a separate connection.

    They are downloaded a last time at the end, unless `skip_last` was called: for a completed run, the
    results contain them.
    """
    bringing = BackgroundDownload(session, run_id)
    bringing.start()
    try:
        yield bringing
    except BaseException:
        bringing.skip_last()
        raise
    finally:
        bringing.stop()


class BackgroundDownload(threading.Thread):
    """The thread that downloads. It never raises: what cannot be downloaded is tried again later, or stays on
    the machine.
    """

    def __init__(self, session: Session, run_id: str) -> None:
        super().__init__(name="meanwhile", daemon=True)
        self._session = session
        self._run_id = run_id
        saves = bool(session.profile.train.checkpoints)
        files: list[_Poller] = [*([checkpoints.Copies(session, run_id)] if saves else ())]
        files.append(events.Written(session, run_id))
        self._files = [_Timed(poller, _EVERY_S if saves else _SELDOM_S) for poller in files]
        self._watching = session.progress if isinstance(session.progress, Watching) else None
        pace = _pace(session, run_id, self._watching) if self._watching else None
        self._printed = pace.printed if pace else None
        self._pace = [_Timed(pace, pace.every_s)] if pace else []
        self._logged = _logged(session, run_id)
        if self._logged is not None:
            self._pace.append(_Timed(self._logged, _SELDOM_S))
        self._host: Host | None = None
        self._ends = threading.Event()
        self._told: set[str] = set()
        self._last = saves
        """Whether to download once more at the end; False for a run that ended before the first download."""
        self._skips_last = False

    def run(self) -> None:
        try:
            while not self._ends.wait(self._left()):
                due = [each for each in (*self._pace, *self._files) if each.due <= time.monotonic()]
                self._last = self._last or any(each in self._files for each in due)
                self._poll(due)
            if self._last and not self._skips_last:
                self._poll(self._files)
        finally:
            self._close()

    def _left(self) -> float:
        """Seconds until the next poll."""
        return max(0.0, min(each.due for each in (*self._pace, *self._files)) - time.monotonic())

    def printed(self, data: bytes) -> None:
        """Note the next bytes of the run's output."""
        if self._printed is not None:
            self._printed.read(data)
        if self._logged is not None:
            self._logged.printed(data)

    def skip_last(self) -> None:
        """Download nothing more at the end."""
        self._skips_last = True

    def stop(self) -> None:
        self._ends.set()
        self.join(_LAST_S)
        if self._watching is not None:
            self._watching.pace(None)

    def _poll(self, due: Sequence[_Timed]) -> None:
        for each in due:
            try:
                self._host = self._host or self._connected()
                if self._host is not None:
                    each.poller.poll(self._host)
            except (LocalError, SyncError, OSError) as error:
                self._close()
                self._tell(each.poller.what, error)
            except OrchError:
                self._close()
            finally:
                each.postpone()

    def _tell(self, what: str, error: Exception) -> None:
        if what not in self._told:
            self._told.add(what)
            notice(self._session.progress, f"{what} of {self._run_id} could not be downloaded: {error}")

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
