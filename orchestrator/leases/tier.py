"""The kind of machine that this computer can create."""

from __future__ import annotations

from orchestrator.model import Progress


def describe_tier(tell: Progress) -> None:
    """Say the limits of the local machine that is about to be created."""
    from orchestrator.providers.local.survey import survey

    found = survey()
    tell.say(f"Limits of this local machine (tier {found.tier}): {'; '.join(found.limits)}.")
