"""How often a team's store is asked: each question is a round trip to a bucket."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from orchestrator.session.project import Project
from orchestrator.storage.memory import MemoryStore


def test_each_ledger_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path)
    project.share("memory://questions-of-a-team")
    for name in ("first", "second", "third"):
        ledger = project.new_ledger(name)
        ledger.append("lease.opened", lease=ledger.path.parent.name, profile={"name": name})
    asked: Counter[str] = Counter()
    for question in ("head", "get", "list"):
        monkeypatch.setattr(MemoryStore, question, _counted(getattr(MemoryStore, question), question, asked))

    assert [lease.profile["name"] for lease in project.leases()] == ["first", "second", "third"]
    assert asked == {"list": 1, "head": 3}


def _counted(ask: object, name: str, asked: Counter[str]) -> object:
    def counting(*args: object, **named: object) -> object:
        asked[name] += 1
        return ask(*args, **named)  # type: ignore[operator]

    return counting
