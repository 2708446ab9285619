"""A suggested `orch train` or `orch run` has the options that were typed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.errors import LocalError
from orchestrator.model.outcomes import Conclusion
from orchestrator.session.buckets import DataChanged
from orchestrator.training import retrying, side_by_side, start
from orchestrator.training.options import RunOptions
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

ALL = RunOptions(
    local_parity=True,
    resume_proof=True,
    detach=True,
    strict=True,
    retry_failed=True,
    parallel=True,
    new_data=True,
    overrides=("train.command=python it.py", "train.env.KEY=hunter2", "parity.steps=3"),
    run_id="full",
    lease="two",
)
FLAGS = "--local-parity --resume-proof --detach --strict --retry-failed --parallel --new-data --lease two"
SETS = "--set 'train.command=python it.py' --set parity.steps=3 --set train.env.KEY=…"


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> orch.Profile:
    monkeypatch.chdir(tmp_path)
    here_cloud.project(tmp_path, "print('trained')\n")
    return orch.load(Path("orch.yaml"))


def test_every_option_is_in_the_command(profile: orch.Profile) -> None:
    assert ALL.command(profile) == f"orch train --run-id full {FLAGS} {SETS}"
    assert RunOptions().command(profile) == "orch train"
    assert RunOptions().command(profile, "digits-1") == "orch train --run-id digits-1"
    assert RunOptions(retry_failed=True, verb="run", path="orch.yaml", run_id="one").command(profile) == (
        "orch run orch.yaml --run-id one"
    )
    assert "--no-retry-failed" in RunOptions(verb="run", run_id="one").command(profile)


def test_a_command_can_change_one_option(profile: orch.Profile) -> None:
    assert "--local-parity" not in ALL.command(profile, local_parity=False)
    assert RunOptions(run_id="one").anew(profile) == "orch train --run-id one --retry-failed"
    assert RunOptions().anew(profile) == "orch train"
    assert RunOptions(words="orch watch one").command(profile, local_parity=True) == "orch watch one"


def test_what_a_retry_changes_was_not_typed(
    profile: orch.Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "retried_next", lambda *_: retrying.FIRST)
    record: Any = orch.RunRecord.from_json(
        {"schema": "orch.run/1", "run_id": "one", "exit": {"code": 1, "reason": "failed"}}, tmp_path
    )
    failed = orch.RunFailed("It failed.")
    failed.record = record
    tell = SimpleNamespace(say=print)
    course: Any = SimpleNamespace(project=None, profile=profile, run_id="one", tell=tell)
    typed = RunOptions(new_data=True)
    again = retrying._next(course, typed, failed)
    assert again.retry_failed and not again.new_data
    assert again.command(profile) == typed.command(profile)


def session_of(profile: orch.Profile, tmp_path: Path) -> Any:
    return SimpleNamespace(
        profile=profile,
        machine=SimpleNamespace(id="m-1", price=0.05),
        project=SimpleNamespace(run=lambda name: tmp_path / "runs" / name),
    )


@pytest.mark.parametrize("verdict", [Conclusion.DIVERGENT, Conclusion.NOT_COMPARED])
def test_a_refusal_of_parity(verdict: Conclusion, profile: orch.Profile, tmp_path: Path) -> None:
    found = {"verdict": verdict, "detail": "They differ.", "undeclared": []}
    error = side_by_side.mismatch(session_of(profile, tmp_path), "full", found, ALL)
    assert str(error.next_command).startswith(f"{ALL.command(profile)}    #")


def test_data_that_changed(profile: orch.Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(*_: object, **__: object) -> None:
        raise DataChanged("s3://bucket/data", ["a"], [], [])

    monkeypatch.setattr(start.trees_, "send", send)
    with pytest.raises(DataChanged) as refused:
        start._sent(session_of(profile, tmp_path), replace(ALL, new_data=False), str, proved=False)
    assert str(refused.value.next_command).startswith(f"{ALL.command(profile)}    #")


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


@pytest.mark.processes
@pytest.mark.usefixtures("profile")
def test_a_disk_that_is_too_small(cloud: HereCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.runs import space

    def refuse(_project: object, _profile: object, exists: str, again: str) -> None:
        raise LocalError("Too small.", exists=exists, next_command=again)

    (tmp_path / "keras.py").touch()
    orch.up("orch.yaml")
    monkeypatch.setattr(space, "require_results", refuse)
    with pytest.raises(LocalError) as refused:
        orch.train(run_id="full", local_parity=True, overrides=("train.command=python train.py -v",))
    assert refused.value.next_command == (
        "orch train --run-id full --local-parity --set 'train.command=python train.py -v'"
    )
    assert cloud.alive()


@pytest.mark.processes
@pytest.mark.usefixtures("profile")
def test_a_run_whose_machine_is_gone(cloud: HereCloud) -> None:
    def kill(_: bytes) -> None:
        for machine in cloud.alive():
            cloud.kill(machine)

    orch.up("orch.yaml")
    Path("train.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    with pytest.raises(orch.RunFailed) as lost:
        orch.train(run_id="full", parallel=True, overrides=("parity.steps=3",), output=kill)
    assert str(lost.value.next_command).endswith(
        "&& orch train --run-id full --retry-failed --parallel --set parity.steps=3"
    )
