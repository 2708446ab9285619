"""The effect of each parity verdict on `train --local-parity`: stop the run, or only report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.model.outcomes import Conclusion
from orchestrator.profile.units import describe
from orchestrator.profile.values import nearest, parse_choice

STOP, WARN = "stop", "warn"
CHOICES = (STOP, WARN)
VERDICTS = ("equivalent", "divergent", "unstable", "not_compared")
"""The verdicts that are not IDENTICAL, as a profile writes them."""


@dataclass(frozen=True)
class OnMismatch:
    """`stop` or `warn` for each verdict. By default EQUIVALENT is only reported; the others stop."""

    equivalent: str = WARN
    divergent: str = STOP
    unstable: str = STOP
    not_compared: str = STOP

    def stops(self, verdict: str) -> bool:
        """Whether this verdict (as `Verdict.verdict`) prevents the run from starting."""
        if verdict == Conclusion.IDENTICAL:
            return False
        return bool(getattr(self, key_of(verdict), STOP) == STOP)


def key_of(verdict: str) -> str:
    """Return a verdict as a profile writes it."""
    return verdict.lower().replace(" ", "_")


def parse_on_mismatch(value: object) -> OnMismatch:
    """Parse one word for all verdicts, or a mapping verdict -> word; verdicts that it lacks keep their
    default.

    Raises ValueError.
    """
    if isinstance(value, Mapping):
        return OnMismatch(**{_verdict(key): parse_choice(word, CHOICES) for key, word in value.items()})
    if isinstance(value, str):
        word = parse_choice(value, CHOICES)
        return OnMismatch(**dict.fromkeys(VERDICTS, word))
    raise ValueError(f"expected stop, warn, or a mapping of verdicts to these, found {describe(value)}")


def _verdict(key: object) -> str:
    if isinstance(key, str) and key in VERDICTS:
        return key
    near = nearest(key, VERDICTS) if isinstance(key, str) else None
    advice = f"; did you mean {near}?" if near else ""
    raise ValueError(f"unknown verdict {key!r}; the verdicts are {', '.join(VERDICTS)}{advice}")


_MEANINGS = {
    "equivalent": "The first difference is of rounding size.",
    "divergent": "It is larger, or the two runs are not the same job.",
    "unstable": "The script differs from itself on one machine.",
    "not_compared": "Something could not be observed, or the machine lacks data.",
}
_WORD: dict[str, Any] = {"type": "string", "enum": list(CHOICES)}
SCHEMA: dict[str, Any] = {
    "anyOf": [
        _WORD,
        {
            "type": "object",
            "properties": {name: {"description": text, **_WORD} for name, text in _MEANINGS.items()},
            "additionalProperties": False,
        },
    ]
}
