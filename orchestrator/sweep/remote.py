"""Train a point in a worker of a Dask cluster: another process, perhaps on another computer.

The worker needs orch, and the project's folder at the same path.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.model import Silent
from orchestrator.model.sweeps import Point, PointError
from orchestrator.profile import load
from orchestrator.session.project import Project
from orchestrator.sweep.machines import Machines
from orchestrator.sweep.training import Done, Trainer


@dataclass(frozen=True)
class Remote:
    """The facts of a sweep that a worker needs. `agreed`: approved US dollars per hour of a machine; no more
    expensive one is rented. `words`: the command that repeats the sweep.
    """

    root: str
    profile: str
    overrides: tuple[str, ...]
    sweep: str
    agreed: float
    words: str


class Relayed(OrchError):
    """The error of another process, with its kind and exit code."""

    def __init__(self, what: PointError, exists: str | None = None) -> None:
        super().__init__(what.message, exists=exists, next_command=what.next_command)
        self.exit_code = what.exit_code
        self._what = what

    @property
    def kind(self) -> str:
        return self._what.kind

    def __reduce__(self) -> tuple[type[Relayed], tuple[PointError, str | None]]:
        return Relayed, (self._what, self.exists)


def train_there(remote: Remote, number: int, point: Point) -> Done:
    """Train a point on machine `number` of the sweep. Raises no OrchError."""
    project = Project(Path(remote.root))
    try:
        profile = load(Path(remote.profile), overrides=remote.overrides, files=True)
    except OrchError as error:
        return Done(number, point, _relayed(error))
    machines = Machines(project, profile, remote.overrides, remote.sweep, remote.agreed)
    trainer = Trainer(machines, Silent(), remote.words, lambda _plan: False, lambda _point: None)
    done = trainer.train(number, point)
    return done if done.error is None else replace(done, error=_relayed(done.error))


def _relayed(error: OrchError) -> Relayed:
    what = PointError(error.kind, error.message, error.exit_code, error.next_command)
    return Relayed(what, error.exists)
