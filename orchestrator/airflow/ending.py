"""End the run of a task that was killed, and its machine, in a process that outlives the task.

Airflow ends a killed task with SIGKILL after five seconds, which is less than a cloud takes to delete a
machine.

    python -m orchestrator.airflow.ending FOLDER RUN_ID
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.airflow.results import failure_text
from orchestrator.api import cancel, down, pull
from orchestrator.errors import Busy, OrchError, UsageError
from orchestrator.model import Progress
from orchestrator.session.project import Project
from orchestrator.session.work_locks import ending_for_task

_PATIENCE_S = 120.0
"""How long a call that the killed task had begun may take to give up its locks."""


class Ending:
    """The process that ends a run. It waits for `go`, or until the process that made it is gone."""

    def __init__(self, folder: Path, run_id: str) -> None:
        project = Project.at(folder)
        project.ignore_state()
        self.log = project.state / f"ending-{run_id}.log"
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.airflow.ending", str(folder), run_id],
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def go(self) -> None:
        """Begin, because the task holds no lock of the run any more."""
        if self._process.stdin:
            self._process.stdin.close()

    def wait(self) -> bool:
        """Wait for the end. Return whether the run has ended and nothing of it costs money."""
        return self._process.wait() == 0


def end(folder: Path, run_id: str, tell: Progress) -> bool:
    """Cancel the run, download what it wrote, and delete the machine that was created for it.

    Return whether all of that is done. If a step fails, that is reported and the others are tried anyway. A
    machine that existed before the run is kept.
    """
    project = Project.at(folder)
    done = _carried_out(partial(_cancel, project, run_id, tell), tell)
    for lease in project.open_leases():
        asked: dict[str, Any] = {"folder": project.root, "progress": tell}
        if any(run.run_id == run_id for run in lease.uncollected):
            done &= _carried_out(partial(pull, run_id, lease=lease.id, **asked), tell)
        if lease.for_run == run_id:
            done &= _carried_out(partial(down, lease.id, **asked), tell)
    return done


def _cancel(project: Project, run_id: str, tell: Progress) -> None:
    """Cancel the run once no other call is starting it. If it has no job, there is nothing to cancel."""
    limit = time.monotonic() + _PATIENCE_S
    while True:
        try:
            cancel(run_id, folder=project.root, progress=tell)
            return
        except Busy:
            if time.monotonic() > limit:
                raise
            time.sleep(0.5)
        except UsageError:  # no job of it runs on a machine
            return


def _carried_out(step: Callable[[], object], tell: Progress) -> bool:
    try:
        step()
    except OrchError as error:
        tell.say(failure_text(error))
        return False
    return True


class _Log:
    """Progress for the log file."""

    def say(self, text: str) -> None:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", flush=True)

    def transfer(self, label: str, done: int, total: int) -> None: ...


def main(folder: str, run_id: str) -> int:
    """Exit code 0 once nothing of the run is left, else 1."""
    sys.stdin.read()  # returns once the task is gone, or has given up its locks
    log = _Log()
    with ending_for_task(Project.at(folder), run_id, log):
        done = end(Path(folder), run_id, log)
    log.say(f"{run_id} has ended." if done else f"{run_id} could not be ended completely. Next: orch status")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
