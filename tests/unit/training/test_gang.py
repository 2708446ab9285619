"""What several machines are told of each other, and how their records become one."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StackMismatch
from orchestrator.leases.joining import Met, problems
from orchestrator.model import Distribution, Exited, Fingerprint, Lock, NodeFacts, RunRecord
from orchestrator.model.outcomes import ExitReason
from orchestrator.profiling.nodes import Straggler, WaitsFor, straggler
from orchestrator.report.nodes import node_lines
from orchestrator.runtime.acting import acting, inheritable
from orchestrator.runtime.meeting import meet
from orchestrator.training.gang import prefixed
from orchestrator.training.nodes import first_run, node_run, sum_up
from orchestrator.training.origin import began_on, end_of, told
from orchestrator.training.start_barrier import _require_equal, environment

LOCK = Lock(Path("requirements.lock"), "requirements", "0" * 64, ())


@given(st.lists(st.ip_addresses(v=4).map(str), min_size=1, max_size=9))
def test_every_machine_gets_the_same_places_in_the_same_order(addresses: list[str]) -> None:
    told = [environment(rank, addresses) for rank in range(len(addresses))]
    clusters = [json.loads(each["TF_CONFIG"]) for each in told]
    assert all(each["cluster"] == clusters[0]["cluster"] for each in clusters)
    assert [each["task"] for each in clusters] == [
        {"type": "worker", "index": rank} for rank in range(len(addresses))
    ]
    places = clusters[0]["cluster"]["worker"]
    assert len(set(places)) == len(addresses), "machines that share an address listen at different ports"
    assert [each["RANK"] for each in told] == [each["JAX_PROCESS_ID"] for each in told]
    assert {each["MASTER_ADDR"] for each in told} == {addresses[0]}
    assert {each["WORLD_SIZE"] for each in told} == {str(len(addresses))}


def test_a_leftover_of_several_machines_in_a_shell_is_not_passed_on() -> None:
    """A TF_CONFIG of another job would have a run wait for peers that do not exist; it is a difference."""
    told = environment(1, ["10.0.0.1", "10.0.0.2"])
    assert inheritable(told) == {}
    assert "TF_CONFIG" in acting(told)


@given(st.text("ab-.1", min_size=1, max_size=100), st.integers(0, 60))
def test_the_run_of_another_machine_leads_back_to_that_of_the_first(name: str, rank: int) -> None:
    if len(name) <= 95:
        assert first_run(node_run(name, rank), rank) == name
    assert len(node_run(name, rank)) <= 100


@given(st.lists(st.binary(max_size=20)))
def test_lines_of_other_machines_are_whole_and_have_their_rank(pieces: list[bytes]) -> None:
    shown: list[bytes] = []
    output = prefixed("[1] ", shown.append)
    for piece in pieces:
        output(piece)
    whole = b"".join(pieces).rpartition(b"\n")
    lines = whole[0].split(b"\n") if whole[1] else []
    assert b"".join(shown) == b"".join(b"[1] " + line + b"\n" for line in lines)


def met(reached: tuple[int, ...], ahead: dict[str, float] | None = None, took: float = 0.001) -> Met:
    ahead = ahead or {}
    return Met(reached, reached, ahead, dict.fromkeys(ahead, took))


def test_who_does_not_reach_whom_and_whose_clock_differs() -> None:
    assert problems([met((1,)), met((0,))]) == []
    assert problems([met((1,)), met(())]) == ["node 1 does not reach node 0"]
    apart = [met((1,), {"1": 3.2}), met((0,), {"0": -3.2})]
    assert problems(apart) == ["the clock of node 1 is +3.2 s from that of node 0"]
    slow = [met((1,), {"1": 1.4}, took=1.0), met((0,))]
    assert problems(slow) == [], "the answer took as long as the clocks may differ"


def test_machines_meet_and_a_missing_one_is_named() -> None:
    places = [("127.0.0.1", 21310), ("127.0.0.1", 21311), ("127.0.0.1", 21312)]
    found: dict[int, dict[str, object]] = {}

    def one(rank: int, seconds: float) -> None:
        found[rank] = meet(rank, places, seconds)

    threads = [threading.Thread(target=one, args=(rank, 2.0)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0]["reached"] == [1] and found[1]["heard"] == [0]


def fingerprint(flags: str = "avx2", numpy: str = "2.0", driver: str | None = None) -> Fingerprint:
    facts = {"cpu_flags": flags, "implementation": "cpython", **({"driver": driver} if driver else {})}
    return Fingerprint("d", "3.11.7", (Distribution("numpy", numpy, "r"),), facts, {})


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (fingerprint(numpy="2.1"), "numpy"),
        (fingerprint(flags="avx2 avx512f"), "cpu_flags"),
        (fingerprint(driver="550.1"), "driver"),
    ],
)
def test_machines_that_compute_differently_are_refused_by_rank_and_name(
    other: Fingerprint, name: str
) -> None:
    with pytest.raises(StackMismatch, match=f"Node 2 differs from node 0.*{name}"):
        _require_equal(LOCK, (), fingerprint(), other, 2)
    _require_equal(LOCK, (name, "lock:numpy"), fingerprint(), other, 2)


def record(reason: str, *, rank: int = 0, usd: float | None = 0.5, wait: float = 0.1) -> RunRecord:
    return RunRecord(
        node_run("r", rank),
        f"/runs/r{rank}",
        {"reason": reason, "detail": f"{reason} there"},
        machine={"id": f"m{rank}"},
        cost={"run_usd": usd, "run_seconds": 60.0} if usd is not None else None,
        attempts=[{"number": 1, "reason": reason, "usd": usd}],
        profile={"steps": 12, "train_s": 20.0, "input_wait": wait, "cpu_utilisation": 0.5},
        rank=rank,
    )


def test_the_record_of_all_has_their_ends_and_their_costs() -> None:
    whole = sum_up(record("completed"), [record("completed"), record("completed", rank=1), None])
    assert [(node["rank"], node["exit"], node["steps"], node["waited"]) for node in whole.nodes] == [
        (0, "completed", 12, 2.0),
        (1, "completed", 12, 2.0),
        (2, None, None, None),
    ]
    assert whole.cost is not None
    assert (whole.cost["run_usd"], whole.cost["run_seconds"]) == (1.0, 60.0)
    assert whole.attempts[-1]["usd"] == 1.0
    again = sum_up(whole, [whole, record("completed", rank=1), None])
    assert again == whole, "a repeated call adds nothing twice"


@pytest.mark.parametrize(
    ("ends", "began"),
    [
        ([("failed", 5.0, ""), ("lost", 9.0, "")], (1,)),
        ([("preempted", 5.0, ""), ("failed", 4.0, "")], (0,)),
        ([("cancelled", 5.0, ""), ("failed", 9.0, "")], (1,)),
        ([("failed", 9.0, ""), ("failed", 4.0, "")], (1,)),
        ([("failed", 4.0, "BrokenPipeError"), ("failed", 9.0, "")], (0,)),
        ([("failed", 4.0, "ConnectionResetError: [Errno 104]"), ("failed", 4.1, "KeyError: 'x'")], (1,)),
        ([("signal", 4.0, "UNAVAILABLE: Socket closed"), ("out_of_memory", 4.5, "UNAVAILABLE")], (1,)),
        ([("failed", 4.5, "KeyError: 'x'"), ("failed", 4.0, "KeyError: 'x'")], (1, 0)),
        ([("failed", 4.0, "Key"), ("failed", 4.5, "socket closed"), ("failed", 4.9, "Key")], (0, 2)),
    ],
)
def test_where_a_failure_began(
    tmp_path: Path, ends: list[tuple[str, float, str]], began: tuple[int, ...]
) -> None:
    """Clocks agree within a second only; the loss of a connection is the consequence of another end."""
    found = []
    for rank, (reason, at, said) in enumerate(ends):
        folder = tmp_path / str(rank)
        folder.mkdir()
        (folder / "output.log").write_text(f"step 1\n{said}\n")
        found.append(end_of(rank, replace(record(reason, rank=rank), path=str(folder)), at))
    assert began_on(found) == began


def test_an_order_that_clocks_cannot_tell_is_not_claimed() -> None:
    ends: list[Exited] = [{"reason": "failed", "detail": "Status 1."}, {"reason": "failed"}]
    assert told((1,), ends[:1]) == "node 1: Status 1."
    both = told((1, 0), ends)
    assert both.startswith("node 1: Status 1. node 0: failed") and "each may have been the first" in both


def node(rank: int, waited: float | None, busy: float | None = 0.5) -> NodeFacts:
    return {
        "rank": rank,
        "run": node_run("r", rank),
        "machine": f"m{rank}",
        "exit": ExitReason.COMPLETED,
        "steps": 100,
        "trained": 100.0,
        "waited": waited,
        "busy": busy,
    }


def test_the_machine_for_which_the_others_waited_is_named_with_the_reason() -> None:
    assert straggler([node(0, 2.0), node(1, 40.0), node(2, 3.0)]) == Straggler(1, WaitsFor.INPUT, 0.375)
    assert straggler([node(0, 2.0, 0.9), node(1, 2.0, 0.4)]) == Straggler(0, WaitsFor.COMPUTE, 0.5)
    assert straggler([node(0, 2.0), node(1, 4.0)]) is None
    assert straggler([node(0, None, None), node(1, 40.0, 0.5)]) is None
    lines = node_lines([node(0, 2.0), node(1, 40.0)])
    assert lines[1] == "1 on m1: completed, 100 steps, waited 40 s for input"
    assert lines[-1].replace(" %", "%") == (
        "node 1 set the pace: for 38% of the time it waited for its input, and the others for it"
    )
    assert node_lines([node(0, 2.0), node(1, 40.0)], short=True) == lines[:2]
