"""Read the cloud's clock from its answers; the clock of this computer may be wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def http_time(header: object) -> datetime | None:
    """Parse the Date header of an answer. Returns None if it is absent or not a date."""
    try:
        told = parsedate_to_datetime(str(header))
    except (ValueError, TypeError, OverflowError):
        return None
    return told if told.tzinfo else told.replace(tzinfo=UTC)


def age(created_at: datetime | None, now: datetime | None) -> float | None:
    """Return the seconds between two times of one clock, at least 0; None if either is unknown."""
    return None if created_at is None or now is None else max(0.0, (now - created_at).total_seconds())
