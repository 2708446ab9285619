"""Report the end of a run: to MLflow, and to whoever the profile's `notify` names."""

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
    """Report the end that the block reaches: of the record that is passed to the yielded function, or of the
    record of its error.

    `began`: the run was begun by another call. Raises ProfileError as `notified` does.
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
