"""Words for a shell's completion: from this project's files only, and quickly."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.session.project import Project

_MOST = 50


def run_ids(begin: str, folder: Path | None = None) -> list[str]:
    """Return the newest runs of this project whose ids start with `begin`."""
    with suppress(OSError, OrchError):
        runs = (each for each in (Project.at(folder).root / "runs").iterdir() if each.name.startswith(begin))
        known = [(each.stat().st_mtime, each.name) for each in runs if not each.name.startswith(".")]
        return [name for _, name in sorted(known, reverse=True)[:_MOST]]
    return []


def lease_ids(begin: str, folder: Path | None = None) -> list[str]:
    """Return the open leases of this project whose ids start with `begin`."""
    with suppress(OSError, OrchError):
        return [each.id for each in Project.at(folder).open_leases() if each.id.startswith(begin)][:_MOST]
    return []
