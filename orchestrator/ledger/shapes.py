"""The fields of each event, to distinguish damaged from sound ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.ledger.journal import Event, is_number, is_time

Test = Callable[[object], bool]


def _text(value: object) -> bool:
    return isinstance(value, str)


def _object(value: object) -> bool:
    return isinstance(value, dict)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _time_or_none(value: object) -> bool:
    return value is None or is_time(value)


def _profile(value: object) -> bool:
    return isinstance(value, dict) and all(_text(value.get(name)) for name in ("name", "cloud", "path"))


def _machine(value: object) -> bool:
    return isinstance(value, dict) and _text(value.get("id"))


SHAPES: Mapping[str, Mapping[str, Test]] = {
    "lease.opened": {"lease": _text, "profile": _profile},
    "profile.changed": {"profile": _profile},
    "create.intent": {
        "attempt": _whole,
        "spec_id": _text,
        "instance_type": _text,
        "zone": _text,
        "price": is_number,
        "deadline": is_time,
    },
    "create.refused": {"attempt": _whole, "fault": _text},
    "create.accepted": {
        "attempt": _whole,
        "machine": _machine,
        "created_at": is_time,
        "deadline": _time_or_none,
        "price": is_number,
        "age": _time_or_none,
    },
    "machine.armed": {"machine": _text},
    "machine.ended": {"machine": _text, "at": is_time},
    "stack.installed": {"agent": _object, "stack": _object},
    "run.started": {"run_id": _text, "draft": _object},
    "run.found": {"run_id": _text, "draft": _object},
    "run.resumed": {"run_id": _text, "attempt": _whole, "copy": _whole, "taken_at": is_time},
    "run.ended": {"run_id": _text, "reason": _text},
    "run.collected": {"run_id": _text},
    "run.released": {"run_id": _text},
    "run.superseded": {"run_id": _text},
    "run.lost": {"run_id": _text, "reason": _text},
}
"""Events that are not named here are of a later version, or only told."""


def is_sound(event: Event) -> bool:
    """Whether the event has the fields that its kind carries."""
    return all(test(event.data.get(name)) for name, test in SHAPES.get(event.event, {}).items())
