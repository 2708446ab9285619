"""The trigger: it waits in Airflow's triggerer while a run trains, so that no worker is occupied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from orchestrator.airflow.ending import Ending
from orchestrator.airflow.waiting import is_active
from orchestrator.errors import OrchError

_MOST_FAILURES = 5
"""Maximum number of failed checks in a row; then the task is resumed, and its call reports the problem."""


class OrchRunTrigger(BaseTrigger):
    """Check a detached run every `poll_s` seconds, and fire when it is no longer active.

    The triggerer needs the project's folder and the credentials that the workers have.
    """

    def __init__(self, folder: str, run_id: str, poll_s: float) -> None:
        super().__init__()
        self.folder = folder
        self.run_id = run_id
        self.poll_s = poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, as Airflow stores them."""
        arguments = {"folder": self.folder, "run_id": self.run_id, "poll_s": self.poll_s}
        return "orchestrator.airflow.trigger.OrchRunTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Fire once, with `error` if the project's folder is not here."""
        if not Path(self.folder).is_dir():
            error = f"The triggerer has no folder {self.folder}; it needs the same files as the workers."
            yield TriggerEvent({"run_id": self.run_id, "error": error})
            return
        failures = 0
        while failures < _MOST_FAILURES:
            try:
                active = await asyncio.to_thread(is_active, self.folder, self.run_id)
                failures = 0
            except OrchError as refused:
                active, failures = True, failures + 1
                self.log.warning("%s could not be asked about: %s", self.run_id, refused.message)
            if not active:
                break
            await asyncio.sleep(self.poll_s)
        yield TriggerEvent({"run_id": self.run_id, "error": None})

    async def on_kill(self) -> None:
        """Cancel the run and end its machine, in a process that outlives this call."""
        ending = await asyncio.to_thread(Ending, Path(self.folder), self.run_id)
        ending.go()
        self.log.info("%s is being cancelled and its machine ended; see %s", self.run_id, ending.log)
