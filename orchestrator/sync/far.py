"""List what is below a folder of the other side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from orchestrator.errors import SyncError
from orchestrator.model import Agent, Host, Manifest
from orchestrator.model.answers import LONG, Count, Malformed, Most, decoded
from orchestrator.model.plain import last_words, plain
from orchestrator.runtime.transfer.entries import Row
from orchestrator.sync.scan import manifest_of, shown

_SCANNED_WITHIN = 1800.0


@dataclass(frozen=True)
class _Scanned:
    """The answer of the verb scan; an entry has the fields of Row."""

    entries: Annotated[
        tuple[tuple[str, Annotated[str, Most(20)], Count, Count, Annotated[str, Most(64)], str], ...],
        Most(1_000_000),
    ]
    unreadable: tuple[tuple[str, str], ...]


def far_scan(host: Host, agent: Agent, source: str) -> Manifest:
    """Return the manifest of the folder `source` on the other side, where every file is read."""
    done = host.run(agent.argv("scan", source), timeout=_SCANNED_WITHIN, most=LONG)
    try:
        found = decoded(_Scanned, done.stdout, most=LONG)
    except Malformed as error:
        said = last_words(done.stderr) or (f"status {done.returncode}" if done.returncode else error)
        raise SyncError(f"{source} on {host.name} could not be listed: {said}") from None
    if found.unreadable:
        named = [f"{path} ({plain(why)})" for path, why in found.unreadable]
        raise SyncError(f"In {source} on {host.name}, {shown(named)} cannot be read.")
    return manifest_of([Row(*row) for row in found.entries])
