"""A run whose data belong where those of an active run are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.errors import Busy
from orchestrator.jobs import PathTaken
from orchestrator.runs.other_runs import naming_other_run
from orchestrator.session.project import Project
from orchestrator.session.session import Session


def test_a_run_that_only_compares_yet_is_not_to_be_followed(tmp_path: Path) -> None:
    """It is not in the ledger, so `orch logs` would not know it."""
    ledger = Project(tmp_path).new_ledger("one")
    ledger.append("lease.opened", lease=ledger.path.parent.name, profile={"name": "one"})
    session = SimpleNamespace(ledger=ledger, machine=SimpleNamespace(id="m-1", price=0.5))
    with pytest.raises(Busy) as busy, naming_other_run(cast(Session, session)):
        raise PathTaken("The run first has its data at /data until it ends.", "first")
    assert busy.value.next_command == (
        "orch status    # first compares its first steps; then the same command again"
    )
    assert busy.value.exists == "m-1 is still running, at $0.50/h."
