"""The gate that a model must pass to replace the current one, and the history of the models that passed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from .answers import Like, Most
from .outcomes import Conclusion

MODELS = "models"
"""The folder of a project with a link for each model, to the run that is current."""

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
MOST_PROMOTIONS = 1000
"""Promotions that are kept of one model; the oldest are removed."""

_RUN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


@dataclass(frozen=True)
class Limit:
    """The lowest and the highest allowed value of a metric. `exclusive`: the limits themselves are not
    allowed.
    """

    low: float | None = None
    high: float | None = None
    exclusive: bool = False

    def broken_by(self, value: float) -> RefusalReason | None:
        if self.low is not None and (value < self.low or (self.exclusive and value == self.low)):
            return RefusalReason.TOO_LOW
        if self.high is not None and (value > self.high or (self.exclusive and value == self.high)):
            return RefusalReason.TOO_HIGH
        return None


@dataclass(frozen=True)
class Margin:
    """How much worse a metric may be than that of the current model."""

    by: float
    higher_is_better: bool

    def floor(self, before: float) -> float:
        """Return the worst value that is still accepted."""
        return before - self.by if self.higher_is_better else before + self.by

    def exceeded(self, now: float, before: float) -> bool:
        """Return whether a metric is worse by more than the margin. A difference equal to the margin, up
        to rounding, is accepted.
        """
        worse = before - now if self.higher_is_better else now - before
        return worse > self.by and not math.isclose(worse, self.by, rel_tol=1e-9)


@dataclass(frozen=True)
class Accept:
    """The gate of a profile. `name` is the model to replace: `models/<name>`.

    `parity`: verdicts that are accepted; () requires none. `model_check`: every model file must also have
    been checked; a file that failed its check is refused in any case.
    """

    name: str = "current"
    metrics: Mapping[str, Limit] = field(default_factory=dict)
    not_worse: Mapping[str, Margin] = field(default_factory=dict)
    parity: tuple[Conclusion, ...] = ()
    model_check: bool = False
    resume_proof: bool = False


class RefusalReason(StrEnum):
    """Why a run's model was not accepted."""

    TOO_LOW = "too_low"
    TOO_HIGH = "too_high"
    WORSE = "worse"
    NO_METRIC = "no_metric"
    NOT_FINITE = "not_finite"
    PARITY = "parity"
    NO_PARITY = "no_parity"
    MODEL_DIFFERS = "model_differs"
    MODEL_NOT_CHECKED = "model_not_checked"
    NO_MODEL = "no_model"
    RESUME = "resume"
    NO_RESUME_PROOF = "no_resume_proof"


@dataclass(frozen=True)
class Refusal:
    """One rule that a run broke. `subject`: the metric's or file's name, or the verdict that was found.

    `found` and `wanted` are values of the metric, None if there are none. `against`: the run whose model is
    current. `known`: the metrics that the run has, if it lacks `subject`.
    """

    reason: RefusalReason
    subject: str = ""
    found: float | None = None
    wanted: float | None = None
    against: str = ""
    known: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "reason": str(self.reason), "known": list(self.known)}


class How(StrEnum):
    """How a model became the current one."""

    ACCEPTED = "accepted"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class Promotion:
    """A run whose model became the current one. `at`: Unix seconds. `nonce` makes each promotion unique."""

    run_id: Annotated[str, Like(_RUN)]
    at: float
    how: How
    metrics: Annotated[Mapping[str, float], Most(MOST_PROMOTIONS)]
    nonce: Annotated[str, Most(64)]


@dataclass(frozen=True)
class ModelHistory:
    """The promotions of one model, the oldest first: the last one is current. `store`: its url, or "".

    The same object is in `.orch/models/<name>.json` and in the store, whose copy is authoritative.
    """

    name: Annotated[str, Like(NAME_PATTERN)]
    promotions: Annotated[tuple[Promotion, ...], Most(MOST_PROMOTIONS)] = ()
    store: Annotated[str, Most(2000)] = ""

    @property
    def current(self) -> Promotion | None:
        return self.promotions[-1] if self.promotions else None

    def of(self, run_id: str) -> Promotion | None:
        """Return the newest promotion of a run."""
        return next((each for each in reversed(self.promotions) if each.run_id == run_id), None)

    def before(self, run_id: str) -> Promotion | None:
        """Return the promotion that was current when the run was first promoted."""
        earlier = None
        for each in self.promotions:
            if each.run_id == run_id:
                return earlier
            earlier = each
        return earlier

    def previous(self) -> Promotion | None:
        """Return the promotion that was current before this one, without those that were rolled back."""
        standing: list[Promotion] = []
        for each in self.promotions:
            ids = [one.run_id for one in standing]
            if each.how is How.ROLLBACK and each.run_id in ids:
                del standing[ids.index(each.run_id) + 1 :]
            elif each.run_id not in ids[-1:]:
                standing.append(each)
        return standing[-2] if len(standing) > 1 else None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
