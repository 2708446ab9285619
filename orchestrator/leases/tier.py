"""Which kind of machine this computer can make."""

from __future__ import annotations

from orchestrator.model import Progress


def describe_tier(tell: Progress) -> None:
    """Which kind of local machine this computer allows, and what such a machine lacks."""
    from orchestrator.providers.local.survey import survey

    found = survey()
    lost = f"; it lacks: {'; '.join(found.lost)}" if found.lost else ""
    tell.say(f"Local machine, tier {found.tier}{lost}")
