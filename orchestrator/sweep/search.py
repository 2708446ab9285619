"""Let Optuna choose the points: `--search optuna:30` trains 30, each chosen by the results of earlier
ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError
from orchestrator.model.sweeps import Objective, Point
from orchestrator.sweep.matrix import PROFILE_IS
from orchestrator.sweep.points import Ids

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

MOST_TRIALS = 10_000
_FORM = re.compile(r"optuna:([1-9]\d{0,5})")
_WHOLE = re.compile(r"-?\d+")
_DECADES = 10.0
"""A range of numbers above 0 with a larger ratio of its ends is searched on a logarithmic scale."""


def parse_search(text: str | None) -> int | None:
    """Return the number of trials of `optuna:30`; None for None. Raises UsageError, also if Optuna is not
    installed.
    """
    if text is None:
        return None
    found = _FORM.fullmatch(text)
    if not found or int(found[1]) > MOST_TRIALS:
        raise UsageError(
            f"--search {text!r} is not optuna:N, with N runs of at most {MOST_TRIALS}.",
            next_command=f"orch sweep PROFILE --matrix lr=1e-5..1e-1 --search optuna:30    # {PROFILE_IS}",
        )
    if find_spec("optuna") is None:
        raise UsageError(
            "`orch sweep --search` needs Optuna, which is not installed. Nothing was started.",
            next_command="pip install 'orch-train[search]'",
        )
    return int(found[1])


class Search:
    """An Optuna study of `trials` trials. Points in `known`, from an interrupted call, count as trials: the
    study gets those with a result, the others come first.
    """

    def __init__(
        self,
        space: Mapping[str, Sequence[str]],
        trials: int,
        objective: Objective,
        ids: Ids,
        known: Sequence[Point],
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = {name: _distribution(name, values) for name, values in space.items()}
        self._objective, self._ids, self._trials = objective, ids, trials
        self._study = optuna.create_study(
            direction="maximize" if objective.largest else "minimize",
            sampler=optuna.samplers.TPESampler(seed=len(known), constant_liar=True),
        )
        self._asked: dict[str, list[Any]] = {}
        self._results: dict[str, float | None] = {}
        for point in known:
            self._study.enqueue_trial(
                {name: _value(self._space[name], text) for name, text in point.params.items()}
            )

    def points(self) -> Iterator[Point]:
        """Yield the points of the study one after the other. If the study repeats a point, that trial gets
        the earlier result and is not yielded again.
        """
        for _ in range(self._trials):
            trial = self._study.ask(dict(self._space))
            params = {name: _text(value) for name, value in trial.params.items()}
            run_id = self._ids.of(params)
            if run_id in self._results:
                self._tell(trial, self._results[run_id])
                continue
            waiting = self._asked.setdefault(run_id, [])
            waiting.append(trial)
            if len(waiting) == 1:
                yield Point(run_id, params)

    def tell(self, point: Point) -> None:
        """Report the result of a point to the study. A failed point, or one without the metric, is a failed
        trial.
        """
        metric = self._objective.of([point])
        value = point.metrics.get(metric, math.nan) if metric and point.succeeded else math.nan
        self._results[point.run_id] = value if math.isfinite(value) else None
        for trial in self._asked.pop(point.run_id, ()):
            self._tell(trial, self._results[point.run_id])

    def _tell(self, trial: Any, value: float | None) -> None:
        from optuna.trial import TrialState

        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        self._study.tell(trial, value, state=state)


def _distribution(name: str, values: Sequence[str]) -> BaseDistribution:
    """Return the distribution of a parameter: a range of whole numbers or of numbers, or a list of values."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if len(values) != 1 or ".." not in values[0]:
        return CategoricalDistribution(list(values))
    low, _, high = values[0].partition("..")
    if _WHOLE.fullmatch(low) and _WHOLE.fullmatch(high) and int(low) < int(high):
        return IntDistribution(int(low), int(high))
    try:
        first, last = float(low), float(high)
    except ValueError:
        first = last = math.nan
    if not (math.isfinite(first) and math.isfinite(last) and first < last):
        raise UsageError(
            f"--matrix {name}={values[0]} is not a range of numbers, from the smaller to the larger one.",
            next_command=f"orch sweep PROFILE --matrix lr=1e-5..1e-1 --search optuna:30    # {PROFILE_IS}",
        )
    return FloatDistribution(first, last, log=first > 0 and last / first > _DECADES)


def _value(distribution: BaseDistribution, text: str) -> Any:
    from optuna.distributions import FloatDistribution, IntDistribution

    if isinstance(distribution, IntDistribution):
        return int(text)
    return float(text) if isinstance(distribution, FloatDistribution) else text


def _text(value: Any) -> str:
    """Return the text of a value in the command: the fewest digits that parse to the same number."""
    return repr(value) if isinstance(value, float) else str(value)
