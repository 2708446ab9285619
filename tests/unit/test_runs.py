"""`run`, run ids and their attempts, on machines that are folders of this computer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import orchestrator as orch
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    return here_cloud.cloud(tmp_path / "machines", monkeypatch)


def test_a_run_costs_its_own_time_and_not_its_lease_s(cloud: HereCloud, tmp_path: Path) -> None:
    """The machine waited for a while, and served two runs: neither pays for that, nor for the other."""
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, "import time; time.sleep(0.2)\n")
    orch.up(profile, folder=folder)
    time.sleep(1.0)
    records = [orch.train(run_id=name, folder=folder) for name in ("one", "two")]
    for record in records:
        cost = record.cost
        assert cost is not None
        assert cost["run_seconds"] == cost["seconds"] == record.timings["train_s"]
        assert cost["run_usd"] == cost["usd"] == pytest.approx(cost["seconds"] / 3600 * 0.05, abs=1e-6)
        assert cost["lease_seconds"] > cost["seconds"] + 1.0
    assert sum(record.cost["usd"] for record in records if record.cost) < orch.status(folder=folder)[0].cost
    assert len(cloud.alive()) == 1
