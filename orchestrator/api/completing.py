"""Words for the completion of a shell: from this project's files alone, and quickly."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.session.project import Project

_MOST = 50


def run_ids(begin: str, folder: Path | None = None) -> list[str]:
    """The newest runs of this project whose ids begin so."""
    with suppress(OSError, OrchError):
        runs = (each for each in (Project.at(folder).root / "runs").iterdir() if each.name.startswith(begin))
        known = [(each.stat().st_mtime, each.name) for each in runs if not each.name.startswith(".")]
        return [name for _, name in sorted(known, reverse=True)[:_MOST]]
    return []


def lease_ids(begin: str, folder: Path | None = None) -> list[str]:
    """The open leases of this project whose ids begin so."""
    with suppress(OSError, OrchError):
        return [each.id for each in Project.at(folder).open_leases() if each.id.startswith(begin)][:_MOST]
    return []
