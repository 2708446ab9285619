"""The kind of machine that this computer can create."""

from __future__ import annotations

from orchestrator.model import Progress


def describe_tier(tell: Progress) -> None:
    """The tier of local machine that this computer supports, and what it does not have."""
    from orchestrator.providers.local.survey import survey

    found = survey()
    lost = f"; without: {'; '.join(found.lost)}" if found.lost else ""
    tell.say(f"Local machine, tier {found.tier}{lost}")
