"""Report the end of a run to MLflow and to the recipients in the profile's `notify`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.errors import OrchError
from orchestrator.model import Progress, RunRecord
from orchestrator.profile import Profile
from orchestrator.runs import mlflow
from orchestrator.runs.notify import notified
from orchestrator.session.project import Project


@contextmanager
def reported(
    project: Project, profile: Profile, run_id: str, tell: Progress, *, began: bool = False
) -> Iterator[Callable[[RunRecord], RunRecord]]:
    """Report how the block ends: the record that the block passes to the yielded function, or the record in
    its error.

    `began`: another call started the run. Raises ProfileError as `notified` does.
    """

    def log(record: RunRecord) -> RunRecord:
        mlflow.log_end(project, profile, record, tell)
        return record

    with notified(project, profile, run_id, tell, began=began) as told:
        try:
            yield lambda record: told(log(record))
        except OrchError as error:
            if isinstance(record := getattr(error, "record", None), RunRecord):
                log(record)
            raise
