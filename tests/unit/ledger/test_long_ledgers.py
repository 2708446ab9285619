"""What a long ledger costs, in calls and bytes: each line is parsed once and folded once, and no event copies
what came before it.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.ledger import Draft, Lease, Ledger, Ran
from orchestrator.ledger.events import (
    CreateAccepted,
    CreateIntent,
    LedgerEvent,
    RunCollected,
    RunEnded,
    RunReleased,
    RunStarted,
)
from orchestrator.ledger.folding import Sum

PROFILE = {"name": "digits", "cloud": "local", "path": "p.yaml", "overrides": [], "digest": "d"}


def life(number: int) -> Iterator[LedgerEvent]:
    """A machine of its own, and a run on it."""
    run_id, machine = f"run-{number}", f"m-{number}"
    yield CreateIntent(number, "s", "big", "a", 3.6, 9e9)
    yield CreateAccepted(number, {"id": machine}, 1000.0, None, 3.6)
    yield RunStarted(run_id, Draft())
    yield RunEnded(run_id, "completed")
    yield RunCollected(run_id, ran=Ran(run_id, 1, machine, 1.0, 2.0))
    yield RunReleased(run_id)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A ledger of 200 lives, 6 lines each, after its opening line."""
    ledger = Ledger(tmp_path_factory.mktemp("long") / "ledger.jsonl")
    ledger.append("lease.opened", lease="digits-1", profile=PROFILE)
    for number in range(200):
        for event in life(number):
            ledger.record(event)
    return ledger.path.read_bytes()


def written(folder: Path, text: bytes, lines: int) -> Ledger:
    """A ledger of the first lines of `text`, which was never read."""
    ledger = Ledger(folder / f"{lines}.jsonl")
    ledger.path.write_bytes(b"".join(text.splitlines(keepends=True)[:lines]))
    return ledger


def calls(act: Callable[[], object]) -> int:
    """How many functions of Python are entered, generators each time anew."""
    count = 0

    def seen(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def test_the_calls_of_a_fold_grow_with_its_events_and_not_faster(tmp_path: Path, text: bytes) -> None:
    written(tmp_path, text, 10).lease()  # makes the decoders
    few, many = written(tmp_path, text, 301), written(tmp_path, text, 1201)
    assert calls(many.lease) < 4.05 * calls(few.lease)
    assert len(many.lease().runs) == 200 and many.lease().whole


@pytest.mark.parametrize("number", range(6))
def test_an_event_copies_nothing_of_what_came_before(number: int) -> None:
    """An index of 5,000 runs or machines has over 100,000 bytes."""
    total = Sum(Lease("digits-1", 0.0, PROFILE))
    for before in range(5000):
        for event in life(before):
            total.add(event, 1000.0, "")
    last = list(life(4999))[number]
    tracemalloc.start()
    try:
        total.add(last, 1000.0, "")
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


def test_an_append_to_a_ledger_that_was_read_costs_the_same_however_long_it_is(
    tmp_path: Path, text: bytes
) -> None:
    few, many = written(tmp_path, text, 31), written(tmp_path, text, 1201)
    few.contents(), many.contents()
    assert calls(lambda: many.append("lease.closed")) == calls(lambda: few.append("lease.closed"))
    assert [event.seq for event in many.events()] == list(range(1202))


def test_a_ledger_that_another_process_extended_is_parsed_from_there(tmp_path: Path, text: bytes) -> None:
    ledger = written(tmp_path, text, 601)
    read = ledger.contents()
    Ledger(ledger.path).append("lease.closed")
    assert calls(ledger.contents) < 60
    assert ledger.contents().events == (*read.events, Ledger(ledger.path).events()[-1])


def test_a_ledger_that_nobody_extended_is_folded_once(tmp_path: Path, text: bytes) -> None:
    ledger = written(tmp_path, text, 601)
    first = ledger.lease()
    assert calls(ledger.lease) < 60 and ledger.lease() == first
    Ledger(ledger.path).append("lease.closed")
    assert first.open and not ledger.lease().open


@pytest.mark.parametrize("line", [0, 300, 600])
def test_a_line_that_was_damaged_after_it_was_read_is_noticed(tmp_path: Path, text: bytes, line: int) -> None:
    ledger = written(tmp_path, text, 601)
    assert ledger.lease().whole
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"time": 1', b'"time": 2')
    ledger.path.write_bytes(b"".join(lines))
    assert ledger.contents().skipped == 1 and not ledger.lease().whole
    assert ledger.contents() == Ledger(ledger.path).contents()


def test_a_later_version_that_appears_after_a_read_is_refused(tmp_path: Path, text: bytes) -> None:
    ledger = written(tmp_path, text, 601)
    assert ledger.contents().newer is None
    with open(ledger.path, "ab") as file:
        file.write(b'{"v": 2, "seq": 601, "time": 1.0, "event": "lease.closed"}\n')
    with pytest.raises(UsageError, match="version 2 of the ledger"):
        ledger.append("lease.closed")
    assert ledger.contents().newer == 2


def test_a_torn_line_that_is_completed_later_is_read_then(tmp_path: Path, text: bytes) -> None:
    ledger = written(tmp_path, text, 601)
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole[:-20])
    assert len(ledger.events()) == 600
    ledger.path.write_bytes(whole)
    assert len(ledger.events()) == 601 and ledger.lease().whole
