"""The gate at the end of real runs, on machines that are folders of this computer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.api import logs
from orchestrator.errors import NotAccepted
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = pytest.mark.processes

SCRIPT = """import json, os
from pathlib import Path
Path("metrics.json").write_text(json.dumps({"accuracy": float(os.environ["ACCURACY"])}))
"""
MORE = "  env: {ACCURACY: '0.95'}\naccept: {metrics: {accuracy: '>= 0.9'}}\n"


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


def test_run_promotes_or_refuses_and_ends_its_machine_in_both_cases(cloud: HereCloud, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, SCRIPT, more=MORE)
    good = orch.run(profile, run_id="good", folder=folder)
    assert (good.acceptance or {})["accepted"] and (folder / "models/current").resolve().name == "good"
    for _ in range(2):  # the second call gets the record, and the same answer
        with pytest.raises(NotAccepted, match=r"accuracy is 0\.5, and the least is 0\.9") as refused:
            orch.run(profile, run_id="bad", folder=folder, overrides=["train.env.ACCURACY=0.5"])
        assert not cloud.alive()
        record = refused.value.record
        assert isinstance(record, orch.RunRecord) and record.metrics == {"accuracy": 0.5}
        assert (folder / "runs/bad/outputs/metrics.json").is_file()
        assert (folder / "models/current").resolve().name == "good"
    again = orch.run(profile, run_id="good", folder=folder)
    assert not again.started and len(cloud._made) == 2  # the links in models/ are no change of the code
    assert json.loads((folder / "runs/bad/run.json").read_text())["acceptance"]["accepted"] is False


def test_train_and_pull_judge_what_they_download(cloud: HereCloud, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, SCRIPT, more=MORE)
    orch.up(profile, folder=folder)
    orch.train(run_id="one", folder=folder, detach=True)
    orch.attach("one", folder=folder)
    assert (folder / "models/current").resolve().name == "one"
    with pytest.raises(NotAccepted):
        orch.train(run_id="bad", folder=folder, overrides=["train.env.ACCURACY=0.1"])
    orch.train(run_id="two", folder=folder, detach=True)
    logs.logs("two", follow=True, folder=folder, output=lambda _data: None)  # it ends
    orch.pull("two", folder=folder)
    assert (folder / "models/current").resolve().name == "two"
    orch.down(folder=folder)
    assert not cloud.alive()
