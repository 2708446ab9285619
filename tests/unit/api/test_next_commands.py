"""What an error says exists, and the command that it names: as they are now, and typed as they stand."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.model import Machine
from orchestrator.profile import load
from orchestrator.session import connect as connecting
from orchestrator.training.resume import require_checkpoints
from tests.unit import here_cloud
from tests.unit.here_cloud import Door, HereCloud

pytestmark = pytest.mark.processes

FAILS = "import sys\nsys.exit(3)\n"
LINKS = "import os\nos.makedirs('out')\nos.symlink('/etc/passwd', 'out/link')\n"


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    made = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)

    def connect(_place: Any, _lease: Any, machine: Machine, *_: Any, **__: Any) -> Door:
        return Door(made, machine.id)

    monkeypatch.setattr(connecting, "connect", connect)
    return made


def test_a_failed_run_names_its_machine_and_its_price_while_it_is_leased(
    cloud: HereCloud, tmp_path: Path
) -> None:
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, FAILS)
    held = orch.up(profile, folder=folder)
    for _ in range(2):
        with pytest.raises(orch.RunFailed) as failed:
            orch.train(run_id="one", folder=folder)
        assert f"{held.machine} is still running, at $0.05/h." in str(failed.value.exists)
    orch.down(folder=folder)
    with pytest.raises(orch.RunFailed) as failed:
        orch.run(profile, run_id="one", folder=folder, retry_failed=False)
    assert "The machine is gone." in str(failed.value.exists)
    assert not cloud.alive()


def test_results_that_stayed_are_not_said_to_be_on_a_machine_that_is_gone(
    cloud: HereCloud, tmp_path: Path
) -> None:
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, LINKS, more="  outputs: [out]\n")
    with pytest.raises(orch.ResultsLost) as lost:
        orch.run(profile, run_id="one", folder=folder)
    assert not cloud.alive(), "a link that leads out never comes: nothing waits for it"
    with pytest.raises(orch.ResultsLost) as lost:
        orch.run(profile, run_id="one", folder=folder)
    assert "out/link" in lost.value.message
    assert "are lost" in str(lost.value.exists) and "runs on" not in str(lost.value.exists)
    assert not cloud.alive()


def test_a_path_with_spaces_can_be_typed_as_the_next_command_has_it(cloud: HereCloud, tmp_path: Path) -> None:
    folder = tmp_path / "it's a prö jekt"
    profile = here_cloud.project(folder, "print('hello')\n")
    orch.up(profile, folder=folder)
    for machine in cloud.alive():
        cloud.kill(machine)
    with pytest.raises(orch.HostError) as gone:
        orch.train(run_id="one", folder=folder)
    words = shlex.split(str(gone.value.next_command))
    assert words == ["orch", "down", "&&", "orch", "up", str(profile)]


def test_an_end_that_status_saw_is_known_when_the_machine_is_gone(cloud: HereCloud, tmp_path: Path) -> None:
    """Its results are lost then, and not the run."""
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, "print('hello')\n")
    orch.up(profile, folder=folder)
    orch.train(run_id="one", folder=folder, detach=True)
    while orch.status(folder=folder, ask=True)[0].runs[0]["state"] != "completed":
        pass
    for machine in cloud.alive():
        cloud.kill(machine)
    report = orch.down(folder=folder)
    assert [(run["run_id"], run["reason"]) for run in report.lost] == [("one", "results_lost")]


def test_a_cancelled_run_that_waits_is_fetched_whatever_the_same_id_would_run_now(
    cloud: HereCloud, tmp_path: Path
) -> None:
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, "import time\nprint('begun', flush=True)\ntime.sleep(100)\n")
    held = orch.up(profile, folder=folder)
    orch.train(run_id="one", folder=folder, detach=True, overrides=["train.env.S=1"])
    with pytest.raises(orch.UsageError) as refused:
        orch.run(profile, run_id="one", folder=folder)
    assert "env (S) differ" in refused.value.message, "it runs, and with another environment"
    assert f"{held.machine} runs on" in str(refused.value.exists) or str(held.machine) in str(
        refused.value.exists
    )
    assert "orch pull one" in str(refused.value.next_command)
    orch.cancel("one", folder=folder)
    with pytest.raises(orch.RunCancelled):
        orch.run(profile, run_id="one", folder=folder)
    (folder / "train.py").write_text("print('hello')\n")
    assert orch.run(profile, run_id="one", folder=folder).succeeded
    orch.down(folder=folder)
    assert not cloud.alive()


def test_a_run_is_found_by_its_id_where_the_folder_has_several_leases(
    cloud: HereCloud, tmp_path: Path
) -> None:
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, "print('hello')\n")
    other = folder / "other.yaml"
    other.write_text(profile.read_text().replace("name: tiny", "name: other"))
    held = [orch.up(each, folder=folder) for each in (profile, other)]
    for run_id, each in zip(("one", "two"), held, strict=True):
        orch.train(run_id=run_id, lease=each.lease, folder=folder, detach=True)
    with pytest.raises(orch.UsageError) as refused:
        orch.down(held[0].lease, folder=folder)
    assert f"orch down {held[0].lease} --discard" in str(refused.value.next_command)
    assert orch.attach("two", folder=folder).succeeded
    assert orch.pull("one", folder=folder).succeeded
    for each in held:
        orch.down(each.lease, folder=folder)
    assert not cloud.alive()


def test_a_machine_is_leased_anew_with_the_settings_that_were_given(cloud: HereCloud, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, "print('hello')\n")
    orch.up(profile, folder=folder)
    with pytest.raises(orch.UsageError, match="cannot change resources") as refused:
        orch.train(folder=folder, overrides=["resources.cpus=1", "train.env.OTHER=s3cret"])
    assert refused.value.next_command == f"orch down && orch up {profile} --set resources.cpus=1"
    assert len(cloud.alive()) == 1


BACKUP = "import keras\nkeras.callbacks.BackupAndRestore('work/backup')\n"


@pytest.mark.parametrize(
    ("script", "option"),
    [
        (
            BACKUP,
            """--set 'train.checkpoints=["work/backup"]'    # the folders from which train.py resumes""",
        ),
        (
            "print()\n",
            "--set 'train.checkpoints=[FOLDER]'    # FOLDER: where the script saves its checkpoints",
        ),
    ],
)
def test_checkpoints_that_the_script_names_are_in_the_command(
    tmp_path: Path, script: str, option: str
) -> None:
    profile = load(here_cloud.project(tmp_path / "p", script))
    with pytest.raises(orch.UsageError, match="nothing to resume from") as refused:
        require_checkpoints(profile, "orch train --resume-proof")
    assert refused.value.next_command == f"orch train --resume-proof {option}"
    flag = shlex.split(option)[1]
    assert load(profile.path, overrides=[flag]).train.checkpoints
