"""Processes of one training that are recorded at once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.training.observed import Observed, fetch_recording, observed_job, run_observed
from tests.unit import here_cloud
from tests.unit.job_runs import HOST, agent_in, python


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> orch.Profile:
    monkeypatch.chdir(tmp_path)
    here_cloud.project(tmp_path, "print('trained')\n")
    return orch.load(Path("orch.yaml"))


def test_each_worker_has_its_own_variables(profile: orch.Profile) -> None:
    configs = [json.dumps({"task": {"index": rank}}) for rank in (0, 1)]
    first, second = (
        observed_job(profile, "r", "/python", "mine", {"TF_CONFIG": config}) for config in configs
    )
    assert [first.env["TF_CONFIG"], second.env["TF_CONFIG"]] == configs
    assert replace(first, env={}) == replace(second, env={}) == observed_job(profile, "r", "/python", "mine")
    assert (first.observe_steps, first.stop_after_observed) == (profile.parity.steps, True)


def test_all_run_at_once_and_their_recordings_come_here(tmp_path: Path) -> None:
    """Each waits for what the other wrote."""
    code = (
        "import os, pathlib, time\n"
        "mine, other = pathlib.Path({0!r}), pathlib.Path({1!r})\n"
        "mine.touch()\n"
        "while not other.exists(): time.sleep(0.02)\n"
        "folder = pathlib.Path(os.environ['ORCH_OBSERVE_DIR'])\n"
        "folder.mkdir(parents=True, exist_ok=True)\n"
        "(folder / 'steps.jsonl').write_text(mine.name)\n"
    )
    with agent_in(tmp_path / "machine") as agent:
        names = [str(tmp_path / name) for name in ("one", "two")]
        sides = [
            Observed(HOST, agent, python(code.format(mine, other), Path(mine).name, observe_steps=1))
            for mine, other in (names, names[::-1])
        ]
        assert all(each.is_recorded for each in run_observed(sides, together=True))
        for side in sides:
            fetch_recording(side, tmp_path / "here" / side.job.run_id)
    for name in ("one", "two"):
        assert (tmp_path / "here" / name / "observe" / "steps.jsonl").read_text() == name


def test_a_worker_that_fails_ends_those_that_wait_for_it(tmp_path: Path) -> None:
    with agent_in(tmp_path / "machine") as agent:
        jobs = python("raise SystemExit('no')", "fails"), python("import time; time.sleep(600)", "waits")
        ended = run_observed([Observed(HOST, agent, job) for job in jobs], together=True)
    assert [each.reason for each in ended] == ["failed", "cancelled"]
    assert b"no" in ended[0].output and not any(each.is_recorded for each in ended)
