"""Small files of orch that a crash or a person damaged: nothing depends on them, nothing stops at them."""

from __future__ import annotations

import shlex
import subprocess
from functools import partial
from pathlib import Path

import pytest

import orchestrator as orch
from orchestrator.session import owner as identity
from orchestrator.session.project import Project
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = pytest.mark.processes

DAMAGE = [b"", b"\0" * 512, b"\xff\xfe garbage", b'{"run_id": "one"', b"[1, 2]", b"{}"]


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_is_named_and_its_run_can_be_fetched_or_made_again(
    cloud: HereCloud, tmp_path: Path, damage: bytes
) -> None:
    folder = tmp_path / "p ü"
    profile = here_cloud.project(folder, "open('result.txt', 'w').write('x')\n")
    orch.up(profile, folder=folder)
    orch.train(run_id="one", folder=folder)
    record = folder / "runs/one/run.json"
    record.write_bytes(damage)
    for call in (orch.train, partial(orch.run, profile)):
        with pytest.raises(orch.UsageError) as refused:
            call(run_id="one", folder=folder)
        assert str(record) in refused.value.message
        assert "orch pull one" in str(refused.value.next_command)
    assert orch.pull("one", folder=folder).succeeded, "its files are on the machine still"
    assert orch.train(run_id="one", folder=folder).succeeded
    record.write_bytes(damage)
    orch.down(folder=folder)
    with pytest.raises(orch.UsageError) as refused:
        orch.run(profile, run_id="one", folder=folder)
    assert (folder / "runs/one/outputs/result.txt").read_text() == "x", "what came home stays"
    assert not cloud.alive()
    _, _, aside = str(refused.value.next_command).partition("else: ")
    subprocess.run(shlex.split(aside), check=True)
    assert orch.run(profile, run_id="one", folder=folder).succeeded
    assert not cloud.alive()


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_bookmark_begins_anew(tmp_path: Path, damage: bytes) -> None:
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, "print('hello')\n")
    held = orch.up(profile, folder=folder)
    orch.train(run_id="one", folder=folder, detach=True)
    (Project(folder).ledger(held.lease).path.parent / "read-one").write_bytes(damage)
    seen: list[bytes] = []
    assert orch.attach("one", folder=folder, output=seen.append).succeeded
    assert b"".join(seen) == b"hello\n"
    orch.down(folder=folder)


@pytest.mark.parametrize("damage", [b"", b"\0" * 512, b"\xff\xfe", b"relative"])
def test_down_all_passes_over_a_damaged_note_of_a_folder(
    cloud: HereCloud, tmp_path: Path, damage: bytes
) -> None:
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, "print('hello')\n")
    orch.up(profile, folder=folder)
    (tmp_path / "state/leases/aaa").write_bytes(damage)
    (tmp_path / "elsewhere").mkdir()
    orch.down(folder=tmp_path / "elsewhere", everything=True, clouds=["memory"])
    assert not cloud.alive()


def test_a_damaged_owner_s_id_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    (tmp_path / "state/owner").write_bytes(b"\xff\xfe")
    assert len(identity._own_id()) == 32


def test_a_folder_whose_name_is_no_text_can_be_leased_from(cloud: HereCloud, tmp_path: Path) -> None:
    folder = Path(str(tmp_path) + "/p\udcff ü")
    profile = here_cloud.project(folder, "print('hello')\n")
    orch.up(profile, folder=folder)
    assert orch.train(run_id="one", folder=folder).succeeded
    orch.down(folder=folder)
    assert not cloud.alive()
