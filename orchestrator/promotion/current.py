"""The verbs `models` and `rollback`: list the current models, and make an earlier one current again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from orchestrator.errors import Changed, UsageError
from orchestrator.model import Progress
from orchestrator.model.acceptance import MODELS, How, ModelHistory, Promotion
from orchestrator.model.progress import as_progress
from orchestrator.promotion.registry import Registry, known_models, read_or_copy, registry_of
from orchestrator.session.project import Project

CURRENT = "current"


@dataclass(frozen=True)
class Model:
    """A model and its promotions, the newest first. `here`: the runs whose files are on this computer.

    `stale`: why its store could not be read, if the copy on this computer is shown instead; else "".
    """

    history: ModelHistory
    link: str
    here: frozenset[str]
    stale: str = ""

    def as_json(self) -> dict[str, Any]:
        current = self.history.current
        return {
            "name": self.history.name,
            "current": current.run_id if current else None,
            "link": self.link,
            "store": self.history.store or None,
            "stale": self.stale or None,
            "promotions": [_promotion(each, self.here) for each in reversed(self.history.promotions)],
        }


def _promotion(promotion: Promotion, here: frozenset[str]) -> dict[str, Any]:
    return {
        "run_id": promotion.run_id,
        "at": promotion.at,
        "how": str(promotion.how),
        "metrics": dict(promotion.metrics),
        "here": promotion.run_id in here,
    }


def models(profile: str | Path | None = None, *, folder: Path | str | None = None) -> Sequence[Model]:
    """Return the models of this project that were ever accepted.

    With `profile`, return only the model of that profile, which may be known to its store alone. Links that a
    killed call left wrong are corrected.
    """
    project = Project.at(folder)
    registries = [registry_of(project, name) for name in known_models(project)]
    if profile is not None:
        registries = [_of_profile(project, Path(profile))]
    found = []
    for registry in registries:
        history, stale = read_or_copy(registry)
        if history.current and not stale:
            registry.settle(history)
        if history.promotions:
            here = frozenset(each.run_id for each in history.promotions if project.run(each.run_id).is_dir())
            found.append(Model(history, f"{MODELS}/{registry.name}", here, stale))
    return found


def rollback(
    run_id: str | None = None,
    *,
    model: str = CURRENT,
    folder: Path | str | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> Model:
    """Make an earlier accepted run current again; without `run_id`, the one that was current before.

    Calls run one after the other: the second starts from the result of the first. Raise UsageError if there
    is no such run, or if its files are not on this computer.
    """
    project, tell = Project.at(folder), as_progress(progress)
    if model not in known_models(project):
        raise _unknown_model(project, model)
    registry = registry_of(project, model)
    with registry.turn("rollback", tell):
        while True:
            seen = registry.read()
            target = _target(project, seen.history, run_id)
            try:
                if seen.history.current != target:
                    registry.promote(seen, target.run_id, time.time(), How.ROLLBACK, dict(target.metrics))
            except Changed:
                continue
            break
        history = registry.read().history
        registry.settle(history)
    here = frozenset(each.run_id for each in history.promotions if project.run(each.run_id).is_dir())
    return Model(history, f"{MODELS}/{model}", here)


def _of_profile(project: Project, path: Path) -> Registry:
    from orchestrator.profile import load

    profile = load(path)
    if profile.accept is None:
        raise UsageError(
            f"{path} has no gate: its runs are not promoted.",
            next_command='add to it, for example: accept: {metrics: {accuracy: ">= 0.95"}}',
        )
    return Registry(project, profile.accept.name, profile.store or "")


def _target(project: Project, history: ModelHistory, run_id: str | None) -> Promotion:
    target = history.of(run_id) if run_id else history.previous()
    if target is None:
        raise _no_target(history, run_id)
    if not project.run(target.run_id).is_dir():
        store = f"orch pull {target.run_id} --store {history.store}" if history.store else "orch runs"
        raise UsageError(
            f"The files of {target.run_id} are not on this computer, so {MODELS}/{history.name} cannot link "
            "to them.",
            exists="Nothing was changed.",
            next_command=f"{store}    # then the same command again",
        )
    return target


def _no_target(history: ModelHistory, run_id: str | None) -> UsageError:
    if run_id is None:
        return UsageError(
            f"No model other than the current one was accepted as {history.name}.",
            exists="Nothing was changed.",
            next_command="orch models",
        )
    known = [each.run_id for each in history.promotions]
    near = get_close_matches(run_id, known, n=1, cutoff=0.5)
    return UsageError(
        f"{run_id} was never accepted as {history.name}.",
        exists="Nothing was changed.",
        next_command=f"orch rollback {near[0]}" if near else "orch models",
    )


def _unknown_model(project: Project, name: str) -> UsageError:
    known = known_models(project)
    if not known:
        return UsageError(
            "No model was accepted in this project yet.",
            next_command="orch train    # with accept: in its profile",
        )
    near = get_close_matches(name, known, n=1, cutoff=0.3) or known[:1]
    return UsageError(
        f"There is no model {name} in this project; there is: {', '.join(known)}.",
        next_command=f"orch rollback --model {near[0]}",
    )
