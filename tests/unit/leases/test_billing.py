"""What runs cost that share a machine: no moment is paid twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orchestrator as orch
from orchestrator.api import logs
from orchestrator.leases import billing
from orchestrator.leases.billing import Span, share
from orchestrator.leases.settle import settle
from orchestrator.ledger import Event, Lease, Ran, fold
from orchestrator.report.run import summary
from orchestrator.session.project import Project
from tests.unit import here_cloud

pytestmark = pytest.mark.processes

PRICE = 3.6
"""US dollars an hour: 0.001 a second."""
LIFE = 1000.0
PROFILE = {"name": "tiny", "cloud": "memory", "path": "p.yaml", "overrides": [], "digest": "d"}
DRAFT = {"stack": {"digest": "s", "differences": []}, "data": None, "parity": None, "timings": {}}

moments = st.floats(0, LIFE, allow_nan=False)
spans = st.tuples(moments, moments).map(lambda pair: Span(min(pair), max(pair)))


def covered(spans: Sequence[Span]) -> float:
    """Seconds in which at least one of them ran."""
    seconds, reached = 0.0, -math.inf
    for span in sorted(spans, key=lambda span: span.begun):
        seconds += max(0.0, span.ended - max(span.begun, reached))
        reached = max(reached, span.ended)
    return seconds


@given(st.lists(spans, min_size=1, max_size=6))
def test_each_moment_is_paid_once(runs: Sequence[Span]) -> None:
    shares = [share(run, [*runs[:at], *runs[at + 1 :]]) for at, run in enumerate(runs)]
    assert sum(shares) == pytest.approx(covered(runs), abs=1e-6)
    for run, part in zip(runs, shares, strict=True):
        assert -1e-9 <= part <= run.ended - run.begun + 1e-9


def test_three_runs_by_hand() -> None:
    whole, half, beside = Span(0, 60), Span(30, 60), Span(60, 90)
    assert share(whole, [half, beside]) == 45
    assert share(half, [whole, beside]) == 15
    assert share(beside, [whole, half]) == 30
    assert share(whole, []) == 60
    assert share(half, [Span(0, math.inf)]) == 15, "one that goes on"


def lease_of(events: Sequence[tuple[str, float, dict[str, Any]]]) -> Lease:
    made = {"attempt": 0, "machine": {"id": "m"}, "created_at": 0.0, "deadline": 9e9, "price": PRICE}
    opened = [("lease.opened", 0.0, {"lease": "l", "profile": PROFILE}), ("create.accepted", 0.0, made)]
    return fold([Event(n, at, name, data) for n, (name, at, data) in enumerate([*opened, *events])])


@settings(max_examples=200)
@given(
    st.lists(spans, min_size=1, max_size=6),
    st.randoms(use_true_random=False),
    st.floats(-2 * LIFE, 2 * LIFE),
    st.booleans(),
)
def test_all_runs_together_never_cost_more_than_the_lease(
    runs: Sequence[Span], order: Random, skew: float, by_machine: bool
) -> None:
    """Fetched in any order, also again, with a machine whose clock is `skew` seconds off."""
    started = [
        ("run.started", run.begun, {"run_id": f"r{n}", "draft": {**DRAFT, "attempt": {"number": 1}}})
        for n, run in enumerate(runs)
    ]
    events: list[tuple[str, float, dict[str, Any]]] = sorted(started, key=lambda event: event[1])
    numbers = [*range(len(runs)), 0]
    order.shuffle(numbers)
    now = max(run.ended for run in runs)
    for number in numbers:
        lease, name, span = lease_of(events), f"r{number}", runs[number]
        if by_machine:
            ran = Ran(name, 1, "m", span.begun + skew, span.ended + skew)
            unknown = [int(run.run_id[1:]) for run in lease.uncollected if run.run_id != name]
            beside = [Span(runs[n].begun + skew, runs[n].ended + skew) for n in unknown]
        else:
            ran = billing.spans_of_ledger(lease, lease.runs[name], now)
            beside = billing.spans_of_others(lease, name, now)
        cost = billing.cost_of(lease, ran, beside, now)
        assert cost["charged_seconds"] <= cost["run_seconds"] + 1e-3
        data = {"run_id": name, "ran": asdict(billing.charge(ran, cost))}
        events.append(("run.collected", now, data))
    lease = lease_of(events)
    assert len(lease.ran) == len(runs)
    together = sum(each.usd for each in lease.ran)
    assert together <= lease.cost(now) + 1e-12
    if by_machine and not skew:
        assert together == pytest.approx(covered(runs) / 3600 * PRICE, abs=1e-5), "no moment is given away"


def test_a_ledger_that_tells_nonsense_of_a_run_is_not_whole() -> None:
    started: tuple[str, float, dict[str, Any]] = ("run.started", 1.0, {"run_id": "r", "draft": DRAFT})
    bad: Sequence[Any] = ({"run_id": "r"}, [1], {**asdict(Ran("r", 1, "m", 0, 1)), "usd": math.nan})
    for ran in bad:
        lease = lease_of([started, ("run.collected", 2.0, {"run_id": "r", "ran": ran})])
        assert not lease.whole and lease.ran == ()
    assert lease_of([started, ("run.collected", 2.0, {"run_id": "r"})]).whole, "of an older version"


def test_runs_beside_each_other_share_the_machine_s_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, "print('begun', flush=True)\nimport time; time.sleep(600)\n")
    orch.up(profile, folder=folder)
    orch.train(run_id="long", detach=True, folder=folder)
    (folder / "train.py").write_text("import time; time.sleep(1)\n")
    short = orch.train(run_id="short", parallel=True, folder=folder)
    orch.train(run_id="gone", detach=True, parallel=True, folder=folder)
    logs.logs("gone", follow=True, folder=folder, output=lambda _data: None)
    orch.cancel("long", folder=folder)
    long = orch.pull("long", folder=folder)

    assert short.cost and long.cost
    assert short.cost["charged_seconds"] == pytest.approx(short.cost["run_seconds"] / 2, abs=0.01)
    assert long.cost["charged_seconds"] < long.cost["run_seconds"]
    assert "other runs shared the machine" in " ".join(summary(short).split())
    assert long.timings["train_s"] == long.cost["run_seconds"]

    project = Project.at(folder)
    ledger = project.ledger(project.leases()[0].id)
    for machine in cloud.alive():
        cloud.kill(machine)
    (lost,) = settle(project, ledger, None)
    assert lost.run_id == "gone" and lost.cost
    together = sum(each.usd for each in ledger.lease().ran)
    assert len(ledger.lease().ran) == 3
    assert together <= ledger.lease().cost(9e9)
    assert together == pytest.approx(sum(run.cost["usd"] for run in (short, long, lost) if run.cost))
