"""Errors of a lease's stack name the machine that runs on, its price, and the next command."""

from __future__ import annotations

from pathlib import Path

import pytest

import orchestrator as orch
from tests.unit import here_cloud

pytestmark = pytest.mark.processes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a machine, whose lock now names a file that no index has."""
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    place = tmp_path / "p"
    orch.up(here_cloud.project(place, "print('hello')\n"), folder=place)
    (place / "requirements.lock").write_text(f"six==1.17.0 --hash=sha256:{'0' * 64}\n")
    return place


def test_train_names_the_machine_and_its_own_command(folder: Path) -> None:
    with pytest.raises(orch.StackError) as refused:
        orch.train(run_id="one", folder=folder)
    assert "is still running, at $0.05/h until" in str(refused.value.exists)
    assert str(refused.value.next_command).startswith("orch train --run-id one ")
    assert "orch down" in str(refused.value.next_command)


def test_the_command_to_repeat_shows_no_secret(folder: Path) -> None:
    given = ("train.env.GREETING=hunter2", "parity.steps=3")
    with pytest.raises(orch.StackError) as refused:
        orch.train(run_id="one", folder=folder, overrides=given)
    assert "--set parity.steps=3 --set train.env.GREETING=…" in str(refused.value.next_command)
    assert "hunter2" not in str(refused.value.next_command)


def test_up_again_names_the_machine(folder: Path) -> None:
    with pytest.raises(orch.StackError) as refused:
        orch.up(folder / "orch.yaml", folder=folder)
    assert "is still running, at $0.05/h until" in str(refused.value.exists)
    assert refused.value.next_command


def test_without_a_machine_nothing_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    profile = here_cloud.project(tmp_path / "p", "print('hello')\n")
    (tmp_path / "p/requirements.lock").write_text("six\n")
    with pytest.raises(orch.StackError) as refused:
        orch.up(profile, folder=tmp_path / "p")
    assert refused.value.exists == "Nothing was created; nothing costs money."
