"""The codec of ledger events: every kind comes back as it was written, and unsound lines are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ledger import Draft, Event, Ledger, Ran, Try, fold
from orchestrator.ledger import events as kinds
from orchestrator.model.answers import Malformed

PROFILE = {"name": "digits", "cloud": "local", "path": "p.yaml", "overrides": [], "digest": "d"}
RAN = Ran("r1", 2, "m-1", 1000.0, 1010.5, 0.25)
LEFT = (kinds.LeftBehind("out/a\udce9.h5", can_come=False),)

EVENTS: tuple[kinds.LedgerEvent, ...] = (
    kinds.LeaseOpened("digits-1", PROFILE, for_run="nightly"),
    kinds.LeaseKept(),
    kinds.ProfileChanged(PROFILE),
    kinds.CreateIntent(0, "s", "big", "a", 3.6, 9e9, 3600.0),
    kinds.CreateRefused(0, "capacity", "X", "none left", undecided=True),
    kinds.CreateAccepted(1, {"id": "m-1", "detail": {"a": [1]}}, 1000.0, None, 3.6, 0.1, 2.5),
    kinds.MachineReached("m-1"),
    kinds.MachineArmed("m-1", 3599.0),
    kinds.MachineEnded("m-1", 2000.0),
    kinds.JoinIntent(("m-1", "m-2")),
    kinds.ImageIntent("orch-digits-0"),
    kinds.ImageMade("orch-digits-0", "aws", "us-east-1", {"orch-stack": "0"}, 8 << 30, 1 << 30),
    kinds.ImageDeleted("orch-digits-0"),
    kinds.DeleteIntent(("m-1", "m-2")),
    kinds.StackInstalled({"python": "p", "root": "r", "base": "b"}, {"digest": "x", "seconds": 1.5}),
    kinds.RunStarted("r1", Draft(attempt=Try(2, ("the code",)))),
    kinds.RunFound("r1", Draft()),
    kinds.RunResumed("r1", 1, 7, 1500.0),
    kinds.RunQueued("r1"),
    kinds.RunBegan("r1"),
    kinds.RunRefused("r9", "No space."),
    kinds.RunEnded("r1", "completed"),
    kinds.RunCollected("r1", LEFT, RAN),
    kinds.RunReleased("r1"),
    kinds.RunSuperseded("r1", 1, ("out/a",)),
    kinds.RunLost("r1", "lost", "Gone.", RAN),
    kinds.LeaseClosed(),
)


def written(event: kinds.LedgerEvent) -> Mapping[str, Any]:
    data: Mapping[str, Any] = json.loads(json.dumps(kinds.encode(event)))
    return data


def test_every_kind_is_tried() -> None:
    assert {type(event) for event in EVENTS} == set(kinds.LedgerEvent.__subclasses__())


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_an_event_comes_back_as_it_was_written(event: kinds.LedgerEvent, tmp_path: Path) -> None:
    assert kinds.decode(event.kind, written(event)) == event
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.record(event)
    (line,) = ledger.events()
    assert kinds.decode(line.event, line.data) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_an_event_without_a_field_that_it_needs_is_refused(event: kinds.LedgerEvent) -> None:
    for field in fields(event):
        if field.default is MISSING and field.default_factory is MISSING:
            data = {name: found for name, found in written(event).items() if name != field.name}
            with pytest.raises(Malformed):
                kinds.decode(event.kind, data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("run.ended", {"run_id": 7, "reason": "completed"}),
        ("machine.ended", {"machine": "m-1", "at": -1.0}),
        ("create.accepted", {**written(EVENTS[5]), "disk_usd_hour": -1.0}),
        ("create.accepted", {**written(EVENTS[5]), "machine": {}}),
        ("run.collected", {"run_id": "r1", "ran": {"run_id": "r1"}}),
        ("lease.opened", {"lease": "digits-1", "profile": {"name": "digits"}}),
    ],
)
def test_an_unsound_event_is_skipped_and_the_lease_is_not_whole(kind: str, data: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        kinds.decode(kind, data)
    opened = Event(0, 1000.0, "lease.opened", written(EVENTS[0]))
    lease = fold([opened, Event(1, 1001.0, kind, data)])
    assert (lease.id, lease.whole) == ("digits-1", False)


def test_fields_and_kinds_of_a_later_version_are_ignored() -> None:
    assert kinds.decode("run.ended", {"run_id": "r1", "reason": "x", "mood": "good"}) == kinds.RunEnded(
        "r1", "x"
    )
    assert kinds.decode("machine.sang", {"song": "la"}) is None
