"""Log the metrics that a run prints to MLflow while it trains, as long as a command follows it.

The end of the run completes the same MLflow run; see runs.mlflow.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from orchestrator.errors import ProfileError
from orchestrator.model import Host
from orchestrator.profile import Profile
from orchestrator.runs.curves import Curve, curves_of_text
from orchestrator.runs.mlflow_notes import MARK, Notes, curve_key
from orchestrator.runs.mlflow_server import MlflowError, Server, metric_name
from orchestrator.session.project import Project

_MOST_BYTES = 1 << 20
"""Bytes at the end of the output in which points are searched."""


class Live:
    """Sends points that are new since the last poll. After a failed request the points are sent again by the
    next poll, or at the end of the run, which reports the failure.
    """

    what = "metrics"

    def __init__(self, project: Project, profile: Profile, server: Server, run_id: str, attempt: int) -> None:
        self._profile, self._server, self._run_id, self._attempt = profile, server, run_id, attempt
        self._notes = Notes(project, run_id)
        self._text = bytearray()

    def printed(self, data: bytes) -> None:
        """Note the next bytes of the run's output."""
        self._text += data
        del self._text[:-_MOST_BYTES]

    def poll(self, host: Host) -> None:
        """Log the new points."""
        del host
        with suppress(MlflowError, OSError):
            self._log()

    def _log(self) -> None:
        note = self._notes.of(self._attempt)
        if note.logged:
            return
        curves = curves_of_text(bytes(self._text).decode("utf-8", "replace"))
        now = int(time.time() * 1000)
        points = list(_new_points(curves, note.sent, now))
        if not points:
            return
        note = replace(note, live=True)
        self._notes.keep(note)
        experiment = self._server.experiment(self._profile.mlflow.experiment or self._profile.name)
        run, _ = self._server.run(experiment, self._run_id, now, (MARK, note.id))
        self._server.log(run, {}, points, {"orch.run_id": self._run_id})
        last = {curve_key(each.axis, each.name): each.xs[-2] for each in curves if len(each.xs) > 1}
        self._notes.keep(replace(note, sent={**note.sent, **last}))


def _new_points(curves: tuple[Curve, ...], sent: Mapping[str, float], now: int) -> Iterator[dict[str, Any]]:
    """Yield what was not logged. The last point of each curve waits: a progress line may still change it."""
    for curve in curves:
        after = sent.get(curve_key(curve.axis, curve.name), -math.inf)
        for x, y in list(zip(curve.xs, curve.ys, strict=True))[:-1]:
            if x > after and math.isfinite(y):
                yield {"key": metric_name(curve.name), "value": y, "timestamp": now, "step": int(x)}


def live(project: Project, profile: Profile, run_id: str, attempt: int) -> Live | None:
    """Return the object that logs a run while it trains; None if neither profile nor environment names a
    server.
    """
    try:
        url = profile.mlflow.server()
    except ProfileError:  # the end of the run reports it
        return None
    if url is None or not re.match(r"https?://", url):
        return None
    return Live(project, profile, Server(url, os.environ), run_id, attempt)
