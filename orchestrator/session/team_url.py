"""The URL of a team's ledger store, noted in `.orch` for verbs that read no profile."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from orchestrator.hosts.atomic import atomic_write

ENVIRONMENT = "ORCH_LEDGER"
_FILE = "ledger-url"
_MOST = 2000


def url_of(state: Path) -> str:
    """Return the URL for the project with this `.orch`; "" if its ledgers are files of this computer."""
    return os.environ.get(ENVIRONMENT) or remembered(state)


def remembered(state: Path) -> str:
    with suppress(OSError, UnicodeDecodeError), open(state / _FILE) as file:
        return file.read(_MOST).strip()
    return ""


def remember(state: Path, url: str) -> None:
    if remembered(state) != url:
        atomic_write(state / _FILE, url.encode())
