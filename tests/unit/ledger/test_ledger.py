"""The journal survives being cut anywhere, and its events add up to the lease."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.ledger import Draft, Event, Ledger, Try, fold
from orchestrator.model import Agent, Job, TreeLink
from orchestrator.runs import record_file
from orchestrator.session.project import Project

PROFILE = {"name": "digits", "cloud": "local", "path": "p.yaml", "overrides": [], "digest": "d"}
MACHINE = {"id": "m-1", "instance_type": "local", "zone": "here", "detail": {}}

LIFE = [
    ("lease.opened", {"lease": "digits-1", "profile": PROFILE}),
    (
        "create.intent",
        {"attempt": 0, "spec_id": "s", "instance_type": "big", "zone": "a", "price": 3.6, "deadline": 9e9},
    ),
    ("create.refused", {"attempt": 0, "fault": "capacity", "message": "none left"}),
    (
        "create.intent",
        {"attempt": 1, "spec_id": "s", "instance_type": "big", "zone": "b", "price": 3.6, "deadline": 9e9},
    ),
    (
        "create.accepted",
        {"attempt": 1, "machine": MACHINE, "created_at": 1000.0, "deadline": 9e9, "price": 3.6},
    ),
    ("stack.installed", {"agent": {"python": "p", "root": "r", "base": "b"}, "stack": {"digest": "x"}}),
    ("run.started", {"run_id": "r1", "draft": {"stack": {}}}),
    ("run.ended", {"run_id": "r1", "reason": "completed"}),
    ("run.collected", {"run_id": "r1"}),
    ("delete.intent", {"machines": ["m-1"]}),
    ("lease.closed", {}),
]


def events(count: int) -> list[Event]:
    return [Event(n, 1000.0 + n, name, data) for n, (name, data) in enumerate(LIFE[:count])]


def test_a_whole_life_adds_up() -> None:
    lease = fold(events(len(LIFE)))
    assert not lease.open
    assert [attempt.outcome for attempt in lease.attempts] == ["capacity", "accepted"]
    assert lease.machine == MACHINE
    assert lease.uncollected == ()
    assert lease.cost(0.0) == pytest.approx(10 / 3600 * 3.6)


@given(st.integers(1, len(LIFE)))
def test_every_beginning_of_a_life_is_a_lease(count: int) -> None:
    lease = fold(events(count))
    assert lease.id == "digits-1"
    assert lease.open == (count < len(LIFE))


def test_a_run_whose_machine_is_gone_is_settled() -> None:
    """It has nothing to collect any more, so it keeps nothing waiting."""
    lost = Event(9, 1009.0, "run.lost", {"run_id": "r1", "reason": "preempted", "detail": "Taken back."})
    lease = fold([*events(7), lost])
    assert lease.uncollected == ()
    run = lease.runs["r1"]
    assert (run.lost, run.exit_reason, run.collected) == ("Taken back.", "preempted", False)


def test_a_run_that_was_given_up_and_came_home_all_the_same_is_collected() -> None:
    lost = Event(9, 1009.0, "run.lost", {"run_id": "r1", "reason": "lost", "detail": "Gone."})
    run = fold([*events(7), lost, Event(10, 1010.0, "run.collected", {"run_id": "r1"})]).runs["r1"]
    assert run.collected
    assert run.lost is None


def test_a_lease_that_run_made_is_the_user_s_once_somebody_calls_up() -> None:
    opened = Event(0, 1000.0, "lease.opened", {"lease": "digits-1", "profile": PROFILE, "for_run": "nightly"})
    assert fold([opened]).for_run == "nightly"
    assert fold([opened, Event(1, 1001.0, "lease.kept", {})]).for_run is None


def test_an_attempt_that_was_only_intended_is_known_as_such() -> None:
    assert [a.outcome for a in fold(events(2)).attempts] == ["intended"]


def test_an_attempt_taken_up_again_is_listed_once() -> None:
    again = Event(2, 1002.0, *LIFE[1])
    assert len(fold([*events(2), again]).attempts) == 1


def test_events_of_a_later_version_do_not_break_this_one() -> None:
    lease = fold([*events(5), Event(5, 1005.0, "machine.sang", {"song": "la"})])
    assert lease.machine == MACHINE


def test_a_ledger_without_its_beginning_still_tells_what_to_end() -> None:
    accepted = Event(5, 1005.0, "create.accepted", {**LIFE[4][1], "machine": {**MACHINE, "provider": "aws"}})
    lease = fold([accepted], "digits-1")
    assert (lease.id, lease.profile["name"], lease.profile["cloud"]) == ("digits-1", "digits", "aws")
    assert [holding.id for holding in lease.holdings] == ["m-1"]
    assert lease.open and not lease.whole


def write_life(path: Path) -> Ledger:
    ledger = Ledger(path)
    for name, data in LIFE:
        ledger.append(name, **data)
    return ledger


def test_a_file_cut_at_any_byte_keeps_its_whole_lines_and_takes_new_ones(tmp_path: Path) -> None:
    text = write_life(tmp_path / "whole.jsonl").path.read_bytes()
    first = text.index(b"\n") + 1
    for cut in range(first, len(text), 37):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(text[:cut])
        ledger = Ledger(path)
        before = text[: cut + 1].count(b"\n")  # a line that lacks its newline alone is whole
        assert len(ledger.events()) == before
        ledger.append("lease.closed")
        assert [event.seq for event in ledger.events()] == list(range(before + 1))
        assert not ledger.lease().open


def _append_many(path: str, name: str) -> None:
    for count in range(50):
        Ledger(Path(path)).append("noted", by=name, count=count)


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_append_many, args=(str(path), str(n))) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(150))
    assert sorted((line["by"], line["count"]) for line in lines) == sorted(
        (str(n), count) for n in range(3) for count in range(50)
    )


def test_a_lease_whose_opening_a_full_disk_kept_out_is_none(tmp_path: Path) -> None:
    project = Project.at(tmp_path)
    for name, left in (("nothing-1", b""), ("torn-2", b'{"v": 1, "seq": 0, "ti')):
        path = project.ledger(name).path
        path.parent.mkdir(parents=True)
        path.write_bytes(left)
    assert project.leases() == [] and project.open_leases() == []


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    assert write_life(tmp_path / "l.jsonl").path.stat().st_mode & 0o777 == 0o600


def test_a_draft_comes_back_as_it_was_written(tmp_path: Path) -> None:
    job = Job("r", ("python", "x" * 9000), "/python", trees=(TreeLink("/there", "."),))
    draft = Draft(
        {"digest": "s", "inherited": {"A": "x" * 9000}, "differences": []},
        {"digest": None, "files": 0, "bytes": 0},
        {"verdict": "IDENTICAL"},
        {"sync_s": 0.5},
        Try(2, ("code: train.py",)),
        ("python", "train.py"),
        {"digest": "c", "files": 1},
        Agent("/python", "/root", "/base"),
        job,
    )
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append("lease.opened", lease="one", profile=PROFILE)
    ledger.append("run.started", run_id="r", draft=draft.as_json())
    assert ledger.lease().runs["r"].draft == draft


def test_a_draft_of_another_shape_is_damage_and_stops_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append("lease.opened", lease="one", profile=PROFILE)
    ledger.append("run.started", run_id="r", draft={"timings": "none"})
    assert not ledger.lease().whole and ledger.lease().runs == {}


def test_a_record_of_a_later_version_is_refused_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": "orch.run/7", "run_id": "r", "exit": "another shape"}')
    with pytest.raises(UsageError, match="version 7 of the record; this orch reads version 1"):
        record_file.read(tmp_path)


def test_the_command_that_leases_again_has_what_was_typed() -> None:
    typed = {"overrides": ["cloud=aws", "train.command=python a b.py"], "withheld": ["train.env.TOKEN"]}
    opened = {"lease": "digits-1", "profile": {**PROFILE, **typed, "path": "my profiles/p.yaml"}}
    lease = fold([Event(0, 1000.0, "lease.opened", opened)])
    assert lease.up_command == (
        "orch up 'my profiles/p.yaml' --set cloud=aws --set 'train.command=python a b.py' "
        "--set train.env.TOKEN=…"
    )
