"""The operator: one task that provisions a machine, trains there, and ends the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from orchestrator.airflow.ending import Ending
from orchestrator.airflow.results import failure_text, result_of
from orchestrator.airflow.run_ids import run_id_of
from orchestrator.airflow.trigger import OrchRunTrigger
from orchestrator.api import run
from orchestrator.errors import OrchError
from orchestrator.model import RunRecord
from orchestrator.model.outcomes import ExitReason
from orchestrator.session.project import Project
from orchestrator.session.work_locks import ending_for_task


class _Killed(KeyboardInterrupt):
    """Airflow killed the task."""


class OrchRunOperator(BaseOperator):
    """Call `orchestrator.run`: up, parity, train, pull, gate and down, for one run id.

    `profile`: the YAML file, absolute or relative to `folder`. `folder`: the project; default: the profile's
    folder. `overrides`: as `--set` takes them. `run_id`: default: of the DAG, the task, the DAG run and the
    map index, so that a retry continues the run of the try before. `local_parity`, `resume_proof` and
    `parallel`: see `orchestrator.run`.

    With `deferrable` the worker is free while the machine trains: the triggerer asks about the run every
    `poll_s` seconds. Until then nobody follows the run, so checkpoints and TensorBoard files come home only
    through the profile's `store`.

    Returns the run's result as JSON: see `result_of`. An error that a retry may solve becomes an
    AirflowException, every other one an AirflowFailException. A task that is killed, timed out, marked or
    cleared cancels its run and ends the machine that the run created.
    """

    template_fields: Sequence[str] = ("profile", "folder", "run_id", "overrides")

    def __init__(
        self,
        *,
        profile: str,
        folder: str | None = None,
        run_id: str | None = None,
        overrides: Sequence[str] = (),
        local_parity: bool = False,
        resume_proof: bool = False,
        parallel: bool = False,
        deferrable: bool = False,
        poll_s: float = 60.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.profile = profile
        self.folder = folder
        self.run_id = run_id
        self.overrides = overrides
        self.local_parity = local_parity
        self.resume_proof = resume_proof
        self.parallel = parallel
        self.deferrable = deferrable
        self.poll_s = poll_s
        self._called: str | None = None
        self._active = False
        self._ending: Ending | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Begin the run or continue it; a run of this id that failed before is tried again."""
        return self._advance(context, retry_failed=True)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Finish the run after the trigger fired. If its profile allows another attempt, wait again."""
        if event.get("error"):
            raise AirflowFailException(event["error"])
        return self._advance(context, retry_failed=False)

    def on_kill(self) -> None:
        """Cancel the run and end its machine, in a process that outlives the task."""
        if self._called is None or self._ending is not None:
            return
        self._ending = Ending(self._project_folder(), self._called)
        self.log.warning("%s is being cancelled; see %s", self._called, self._ending.log)
        if self._active:
            raise _Killed
        self._ending.go()
        self._ending.wait()

    def _advance(self, context: Context, *, retry_failed: bool) -> dict[str, Any]:
        folder, run_id = self._project_folder(), self.run_id or _run_id(context)
        output = _TaskLog(self.log)
        self._called, self._active = run_id, True
        try:
            with ending_for_task(Project.at(folder), run_id, output):
                pass  # the call of the earlier try has ended
            record = self._run(folder, run_id, retry_failed, output)
        except OrchError as error:
            failed = AirflowException if error.worth_repeating else AirflowFailException
            raise failed(failure_text(error)) from error
        except _Killed:
            raise AirflowFailException(self._killed(run_id)) from None
        finally:
            self._active = False
            output.close()
        if record.exit["reason"] == ExitReason.RUNNING:
            trigger = OrchRunTrigger(str(folder), run_id, self.poll_s)
            self.defer(trigger=trigger, method_name="execute_complete")
        return result_of(record)

    def _run(self, folder: Path, run_id: str, retry_failed: bool, output: _TaskLog) -> RunRecord:
        return run(
            folder / self.profile if self.folder else Path(self.profile).resolve(),
            run_id=run_id,
            overrides=self.overrides,
            folder=folder,
            local_parity=self.local_parity,
            resume_proof=self.resume_proof,
            parallel=self.parallel,
            retry_failed=retry_failed,
            detach=self.deferrable,
            output=output.write,
            progress=output,
        )

    def _killed(self, run_id: str) -> str:
        """Wait until the run is cancelled; Airflow may end this process before. Returns what happened."""
        ending = self._ending
        if ending is None:
            return f"{run_id} was interrupted."
        ending.go()
        done = "nothing of it is left" if ending.wait() else "not all could be ended"
        return f"{run_id} was cancelled because its task was killed; {done}: see {ending.log}"

    def _project_folder(self) -> Path:
        folder = Path(self.folder) if self.folder else Path(self.profile).parent
        if not folder.is_dir():
            raise AirflowFailException(f"This worker has no folder {folder}.")
        return folder.resolve()


def _run_id(context: Context) -> str:
    task = context["ti"]
    return run_id_of(task.dag_id, task.task_id, task.run_id, task.map_index)


class _TaskLog:
    """The progress of orch, and the lines that the job prints, in the task's log."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._rest = b""

    def say(self, text: str) -> None:
        self._log.info("%s", text)

    def transfer(self, label: str, done: int, total: int) -> None: ...

    def write(self, data: bytes) -> None:
        """Log what the job printed, by line."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._log.info("%s", line.decode(errors="replace"))

    def close(self) -> None:
        """Log the last line if it is incomplete."""
        if self._rest:
            self.write(b"\n")
