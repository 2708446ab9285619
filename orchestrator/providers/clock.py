"""A cloud's own clock, as its answers tell it: this computer's may be wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def http_time(header: object) -> datetime | None:
    """Parse the Date header of an answer. None where there is none, or it cannot be read."""
    try:
        told = parsedate_to_datetime(str(header))
    except (ValueError, TypeError, OverflowError):
        return None
    return told if told.tzinfo else told.replace(tzinfo=UTC)


def age(created_at: datetime | None, now: datetime | None) -> float | None:
    """Seconds between two times of one clock; None where either is unknown. It is never negative."""
    return None if created_at is None or now is None else max(0.0, (now - created_at).total_seconds())
