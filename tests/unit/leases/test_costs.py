"""`orch costs` and budgets: sums of what ledgers say, and the refusal before anything is made."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.api.lease import up
from orchestrator.errors import EXIT_CAPACITY, ProfileError, ProviderError, UsageError
from orchestrator.leases import budget
from orchestrator.leases.costs import by_month, costs
from orchestrator.ledger import Ledger
from orchestrator.profile import Profile, load
from orchestrator.providers.memory import MemoryProvider
from orchestrator.report.costs import costs_text
from orchestrator.session.owner import note_folder
from orchestrator.session.project import Project
from tests.unit.memory_cloud import opened_lease, serve

HOUR = 3600.0
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
NOW = NOVEMBER + 100 * HOUR


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("ORCH_BUDGET", raising=False)


def rented(
    root: Path, name: str, begun: float, ended: float | None, *, price: float = 1.0, disk: float = 0.0
) -> Ledger:
    """A lease whose machine runs from `begun` until `ended`, or until two hours after NOW."""
    ledger = opened_lease(Project(root), name)
    ledger.append(
        "create.accepted",
        attempt=0,
        machine={"id": f"i-{name}", "provider": "memory"},
        created_at=begun,
        deadline=NOW + 2 * HOUR,
        price=price,
        disk_usd_hour=disk,
    )
    if ended is not None:
        ledger.append("machine.ended", machine=f"i-{name}", at=ended)
        ledger.append("lease.closed")
    note_folder(name, root)
    return ledger


def test_images_that_cost_are_named_until_they_are_deleted(tmp_path: Path) -> None:
    ledger = rented(tmp_path, "a", NOVEMBER, NOVEMBER + HOUR)
    again = rented(tmp_path, "b", NOVEMBER, NOVEMBER + HOUR)
    stored = {"cloud": "gcp", "region": "", "labels": {}, "disk": 20 << 30, "stored": 4 << 30}
    for one in (ledger, again):  # the same, found there
        one.append("image.made", name="orch-x", **stored)
    again.append("image.made", name="orch-here", **{**stored, "cloud": "local"})
    found = costs(tmp_path, now=NOW)
    assert [(one.image, one.cloud, one.usd_month) for one in found.images] == [("orch-x", "gcp", 0.2)]
    assert "1 image, at most $0.20 a month" in costs_text(found.as_json(), running=found.running)
    ledger.append("image.deleted", name="orch-x")
    gone = costs(tmp_path, now=NOW)
    assert gone.images == ()
    assert "orch image" not in costs_text(gone.as_json(), running=gone.running)


def test_leases_projects_and_months_are_summed_up(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    rented(one, "a", NOVEMBER - 2 * HOUR, NOVEMBER + 3 * HOUR)
    rented(two, "b", NOW - HOUR, None, price=3.0, disk=0.5)
    found = costs(one, now=NOW)
    assert {cost.lease: cost.usd for cost in found.leases} == {"a": 5.0, "b": 3.5}
    assert found.projects == {str(one): 5.0, str(two): 3.5}
    assert found.months == {"2026-10": 2.0, "2026-11": 6.5}
    assert found.usd == 8.5
    assert (found.this_month(), found.this_month(one)) == (6.5, 3.0)
    assert (found.to_come(), found.to_come(one)) == (7.0, 0.0)
    text = costs_text(found.as_json(), running=found.running)
    assert "Total: $8.50" in text
    assert "1 machine is running, at $3.50/h, and $7.00 more if it runs until its deadline." in text


def test_a_machine_that_costs_nothing_is_running_too(tmp_path: Path) -> None:
    rented(tmp_path, "a", NOW - HOUR, None, price=0.0)
    found = costs(tmp_path, now=NOW)
    assert costs_text(found.as_json(), running=found.running).endswith("1 machine is running, at $0.00/h.")
    rented(tmp_path, "b", NOW - HOUR, None, price=2.0)
    found = costs(tmp_path, now=NOW)
    assert "2 machines are running, at $2.00/h, and $4.00 more if they run until" in costs_text(
        found.as_json(), running=found.running
    )
    assert "running" not in found.as_json()
    late = costs(tmp_path, now=NOW + 3 * HOUR)
    assert costs_text(late.as_json(), running=late.running).endswith("Nothing is running.")


def test_a_machine_that_may_have_been_made_counts_until_its_deadline(tmp_path: Path) -> None:
    ledger = opened_lease(Project(tmp_path), "a")
    facts = {"instance_type": "cpu", "zone": "z", "price": 2.0, "deadline": NOW + 3 * HOUR}
    ledger.append("create.intent", attempt=0, spec_id="s", **facts)
    found = costs(tmp_path, now=NOW)
    assert found.to_come() == 6.0
    text = costs_text(found.as_json(), running=found.running)
    assert text.endswith("A machine that may have been created can cost $6.00 until its deadline.")
    ledger.append("create.refused", attempt=0, fault="capacity", code="", message="")
    assert costs(tmp_path, now=NOW).to_come() == 0.0


def test_months_are_those_of_utc_whatever_the_year() -> None:
    december = datetime(2026, 12, 31, 23, tzinfo=UTC).timestamp()
    assert list(by_month(december, december + 2 * HOUR)) == [("2026-12", HOUR), ("2027-01", HOUR)]
    assert list(by_month(december, december)) == []


def test_a_damaged_ledger_is_summed_as_far_as_it_goes(tmp_path: Path) -> None:
    ledger = rented(tmp_path, "a", NOW - HOUR, None)
    with ledger.path.open("a") as file:
        file.write("no line of ours\n")
    assert costs(tmp_path, now=NOW).usd == 1.0


def profile(folder: Path, limit: str = "") -> Profile:
    path = folder / "p.yaml"
    lines = [
        "version: 1",
        "name: p",
        "cloud: memory",
        "resources: {memory: 1 GiB+}",
        "max_duration: 1h",
        limit,
    ]
    path.write_text("\n".join([*lines, "train: {command: python train.py}", ""]))
    return load(path)


@pytest.mark.parametrize(("limit", "refused"), [("budget: 7.5", True), ("budget: 9.01", False), ("", False)])
def test_the_projects_budget_counts_spent_running_and_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, refused: bool
) -> None:
    monkeypatch.setattr("orchestrator.leases.costs.time.time", lambda: NOW)
    rented(tmp_path, "a", NOW - 4 * HOUR, None)  # 4 spent, 2 to come
    wanted = profile(tmp_path, limit)
    if not refused:
        budget.require_budget(Project(tmp_path), wanted, 3.0)
        return
    with pytest.raises(ProviderError, match=r"\$4\.00 was spent") as error:
        budget.require_budget(Project(tmp_path), wanted, 3.0)
    assert error.value.exit_code == EXIT_CAPACITY
    assert "$2.00 more" in error.value.message
    assert "$3.00 until its own" in error.value.message


def test_the_variable_counts_every_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.leases.costs.time.time", lambda: NOW)
    rented(tmp_path / "other", "a", NOW - 4 * HOUR, None)
    (tmp_path / "mine").mkdir()
    wanted = profile(tmp_path / "mine", "budget: 4")
    budget.require_budget(Project(tmp_path / "mine"), wanted, 3.0)
    monkeypatch.setenv("ORCH_BUDGET", "8")
    with pytest.raises(ProviderError, match=r"The ORCH_BUDGET is \$8\.00 a month"):
        budget.require_budget(Project(tmp_path / "mine"), wanted, 3.0)
    budget.require_budget(Project(tmp_path / "mine"), wanted, 0.0)
    monkeypatch.setenv("ORCH_BUDGET", "8 dollars")
    with pytest.raises(UsageError, match="write US dollars a month"):
        budget.require_budget(Project(tmp_path / "mine"), wanted, 3.0)


def test_a_budget_that_is_none_is_refused_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="out of range") as refused:
        profile(tmp_path, "budget: -5")
    assert refused.value.where.endswith("p.yaml:6:9")


def test_the_verb(tmp_path: Path) -> None:
    rented(tmp_path, "a", NOVEMBER, NOVEMBER + HOUR)
    argv = (sys.executable, "-m", "orchestrator", "costs", "--json")
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["months"] == {"2026-11": 1.0}


def test_up_refuses_before_it_asks_and_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = MemoryProvider()
    serve(cloud, monkeypatch)
    profile(tmp_path, "budget: 0.001")
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "requirements.lock").write_text(f"six==1.17.0 --hash=sha256:{'0' * 64}\n")
    asked: list[object] = []

    def approve(plan: object) -> bool:
        asked.append(plan)
        return True

    with pytest.raises(ProviderError) as refused:
        up(tmp_path / "p.yaml", folder=tmp_path, approve=approve)
    assert refused.value.code == "Budget"
    assert asked == []
    assert not cloud.alive()
    assert not Project.at(tmp_path).leases()
