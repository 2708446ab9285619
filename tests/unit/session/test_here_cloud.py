"""What tests of whole runs stand on: machines that are folders, prepared as from an image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import orchestrator as orch
from tests.said import Said
from tests.unit import here_cloud
from tests.unit.far_verb import forked

pytestmark = pytest.mark.processes


def test_nothing_is_installed_on_a_prepared_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    profile = here_cloud.project(tmp_path / "p", "print('hello')\n")
    orch.up(profile, folder=profile.parent)  # takes the image, unless an earlier test has
    orch.down(folder=profile.parent)
    told = Said()
    orch.up(profile, folder=profile.parent, progress=told)
    assert not [line for line in told.lines if "Installing" in line or "reinstalling" in line]
    assert orch.train(folder=profile.parent).succeeded


def test_a_verb_that_is_forked_answers_as_the_one_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    profile = here_cloud.project(tmp_path / "p", "print('hello')\n")
    orch.up(profile, folder=profile.parent)
    (machine,) = cloud.alive()
    base = cloud.base(machine.id)
    door, own = here_cloud.Door(cloud, machine.id), here_cloud.HereHost()
    (python,), (enter,) = base.glob("python/*/bin/python3"), base.glob("runtime/*/enter.py")
    for *verb, status in (("state", str(base), "r", 0), ("outputs", str(base), "r", 3), ("pack", "much", 2)):
        words = (str(python), "-IS", str(enter), *verb)
        one, other = door.run(words), own.run(words)
        assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)
        assert one.returncode == status
    assert json.loads(door.run((str(python), "-IS", str(enter), "state", str(base), "r")).stdout)
    assert forked((str(python), "-IS", str(enter), "start", str(base))) is None
    enter.unlink()
    assert forked((str(python), "-IS", str(enter), "state", str(base), "r")) is None
