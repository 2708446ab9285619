"""The kind of machine that this computer can create."""

from __future__ import annotations

from orchestrator.errors import UsageError
from orchestrator.model import Progress


def describe_tier(tell: Progress) -> None:
    """Say the limits of the local machine that is about to be created."""
    from orchestrator.providers.local.survey import survey

    found = survey()
    tell.say(f"Limits of this local machine (tier {found.tier}): {'; '.join(found.limits)}.")


def require_own_files() -> None:
    """Raise UsageError if local machines are only processes, which have no file system of their own."""
    from orchestrator.providers.local.survey import survey

    if survey().tier == "process":
        raise UsageError(
            "Local machines are only processes here (tier process). They have no file system of their own, "
            "so no image can be made of them.",
            next_command="orch doctor    # says what this computer lacks for an isolated machine",
        )
