"""Parse the gate of a profile (`accept`): limits of metrics, margins, verdicts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from orchestrator.model.acceptance import NAME_PATTERN, Limit, Margin
from orchestrator.model.outcomes import Conclusion
from orchestrator.profile.units import describe
from orchestrator.profile.values import nearest, parse_choice

NUMBER_PATTERN = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
LIMIT_PATTERN = rf"^\s*(>=|<=|>|<)\s*{NUMBER_PATTERN}\s*$"
_LIMIT = re.compile(LIMIT_PATTERN.replace(NUMBER_PATTERN, rf"({NUMBER_PATTERN})", 1))
_HIGHER = re.compile(
    r"(^|[^a-z])(acc|accuracy|auc|auroc|auprc|ap|map|f1|f1_score|precision|recall|r2|score|iou|miou|dice|bleu"
    r"|rouge|ndcg|mrr|reward|return|top_?\d+)([^a-z]|$)",
    re.I,
)
_LOWER = re.compile(
    r"(^|[^a-z])(loss|error|err|mae|mse|rmse|rmsle|mape|smape|nll|perplexity|ppl|wer|cer|fid|brier|logloss"
    r"|cross_?entropy|crossentropy|deviance)([^a-z]|$)",
    re.I,
)
_PARITY = {
    "identical": (Conclusion.IDENTICAL,),
    "equivalent": (Conclusion.IDENTICAL, Conclusion.EQUIVALENT),
}

PARITY_CHOICES = tuple(_PARITY)


def parse_model_name(value: object) -> str:
    """Parse the name of a link in `models/`."""
    if isinstance(value, str) and re.fullmatch(NAME_PATTERN, value):
        return value
    raise ValueError(f"expected a name of letters, digits, . _ and -, found {describe(value)}")


def parse_limits(value: object) -> dict[str, Limit]:
    """Parse `{accuracy: ">= 0.95", loss: {max: 0.3}}`. Raises ValueError with the metric's name."""
    return {name: _named(name, _limit, found) for name, found in _metrics(value).items()}


def parse_margins(value: object) -> dict[str, float]:
    """Parse `{accuracy: 0.01}`: by how much each metric may be worse. Raises ValueError with the metric's
    name.
    """
    return {name: _named(name, _margin, found) for name, found in _metrics(value).items()}


def parse_parity(value: object) -> tuple[Conclusion, ...]:
    """Return the verdicts that `identical` or `equivalent` accepts."""
    word = value.lower() if isinstance(value, str) else value
    return _PARITY[parse_choice(word, PARITY_CHOICES)]


def margins(limits: Mapping[str, Limit], by: Mapping[str, float]) -> dict[str, Margin]:
    """Return the margins with their direction (is more better?), except for the metrics that `undirected`
    returns.
    """
    found = {name: (amount, higher_is_better(name, limits.get(name))) for name, amount in by.items()}
    return {name: Margin(amount, higher) for name, (amount, higher) in found.items() if higher is not None}


def undirected(limits: Mapping[str, Limit], by: Mapping[str, float]) -> list[str]:
    """Return the metrics of `not_worse` for which neither limit nor name says whether higher is better."""
    return [name for name in by if higher_is_better(name, limits.get(name)) is None]


def higher_is_better(name: str, limit: Limit | None = None) -> bool | None:
    """Return whether a higher value of the metric is better, by its limit, else by its name; None if
    unknown.
    """
    if limit and (limit.low is None) != (limit.high is None):
        return limit.low is not None
    higher, lower = bool(_HIGHER.search(name)), bool(_LOWER.search(name))
    return None if higher == lower else higher


def _metrics(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(
            f'expected a mapping of metrics, like {{accuracy: ">= 0.95"}}, found {describe(value)}'
        )
    return value


def _named(name: str, parse: Any, value: object) -> Any:
    try:
        return parse(name, value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _limit(name: str, value: object) -> Limit:
    if isinstance(value, Mapping):
        return _limit_of_mapping(value)
    if isinstance(value, str) and (found := _LIMIT.fullmatch(value)):
        amount, exclusive = float(found[2]), len(found[1]) == 1
        return Limit(low=amount, exclusive=exclusive) if ">" in found[1] else Limit(None, amount, exclusive)
    if _is_number(value):
        higher = higher_is_better(name)
        if higher is None:
            raise ValueError(f'write ">= {value}" or "<= {value}": its name does not say which is better')
        return Limit(low=float(value)) if higher else Limit(high=float(value))  # type: ignore[arg-type]
    raise ValueError(f'expected a limit such as ">= 0.95" or "<= 0.3", found {describe(value)}')


def _limit_of_mapping(value: Mapping[object, object]) -> Limit:
    for key, amount in value.items():
        if key not in ("min", "max"):
            near = nearest(key, ("min", "max")) if isinstance(key, str) else None
            raise ValueError(f"unknown key {key!r}; the keys are min and max{_meant(near)}")
        if not _is_number(amount):
            raise ValueError(f"{key}: expected a number, found {describe(amount)}")
    low, high = value.get("min"), value.get("max")
    if low is None and high is None:
        raise ValueError("expected min, max, or both")
    if low is not None and high is not None and low > high:  # type: ignore[operator]
        raise ValueError(f"min {low} is above max {high}")
    return Limit(*(None if each is None else float(each) for each in (low, high)))  # type: ignore[arg-type]


def _meant(near: str | None) -> str:
    return f"; did you mean {near}?" if near else ""


def _margin(_: str, value: object) -> float:
    if not _is_number(value) or value < 0:  # type: ignore[operator]
        raise ValueError(f"expected by how much it may be worse, such as 0.01, found {describe(value)}")
    return float(value)  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_NUMBER = {"type": "number"}
_BOUNDS = {
    "type": "object",
    "properties": {
        "min": {"description": "The least that is accepted.", **_NUMBER},
        "max": {"description": "The greatest that is accepted.", **_NUMBER},
    },
    "additionalProperties": False,
    "minProperties": 1,
}
LIMITS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "patternProperties": {
        ".+": {
            "anyOf": [{"type": "string", "pattern": LIMIT_PATTERN, "examples": [">= 0.95"]}, _NUMBER, _BOUNDS]
        }
    },
    "additionalProperties": False,
}
MARGINS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "patternProperties": {".+": {"type": "number", "minimum": 0}},
    "additionalProperties": False,
}
