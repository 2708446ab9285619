"""Format how a run is doing, as one line for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.model.progress import Pace
from orchestrator.report.units import money, share

_FIRST = ("loss", "val_loss")
_METRICS = 3
_SPEED = "steps/s"


def pace_line(
    pace: Pace,
    *,
    since: float = 0.0,
    columns: int = 80,
) -> str:
    """Return the line, in less than `columns` columns: what does not fit is left out, least important first.
    `since`: seconds since the pace was measured.
    """
    seconds = (pace.seconds or 0.0) + since
    parts = [
        (0, clock(seconds)),
        (1, _epoch(pace)),
        *((2 + place, text) for place, text in enumerate(_metrics(pace.metrics))),
        (5, "" if pace.steps_per_s is None else f"{_rate(pace.steps_per_s)} {_SPEED}"),
        (4, "" if pace.input_wait is None else f"input wait {share(pace.input_wait)}"),
        (4, "" if pace.gpu is None else f"GPU {share(pace.gpu)}"),
        (7, _cores(pace)),
        (6, "" if not pace.price else money(pace.price * seconds / 3600)),
        (3, "" if not pace.left else f"{clock(max(0.0, pace.left - since))} left"),
    ]
    return _fitted([(rank, text) for rank, text in parts if text], columns)


def clock(seconds: float) -> str:
    """75 → "1:15"; 3675 → "1:01:15"."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _epoch(pace: Pace) -> str:
    if pace.epoch is None:
        return ""
    return f"epoch {pace.epoch}" if pace.epochs is None else f"epoch {pace.epoch}/{pace.epochs}"


def _metrics(metrics: Mapping[str, float]) -> Iterator[str]:
    names = sorted(metrics, key=lambda name: name not in _FIRST)
    for name in names[:_METRICS]:
        yield f"{name} {_short(metrics[name])}"


def _cores(pace: Pace) -> str:
    if pace.busy is None:
        return ""
    return f"{pace.busy:.1f} of {pace.cores:g} cores" if pace.cores else f"{pace.busy:.1f} cores"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _short(value: float) -> str:
    return f"{value:.4g}"


def _fitted(parts: Sequence[tuple[int, str]], columns: int) -> str:
    kept = list(parts)
    while len(text := " · ".join(text for _, text in kept)) >= columns and len(kept) > 1:
        kept.remove(max(reversed(kept), key=lambda each: each[0]))
    return text[: max(0, columns - 1)]
