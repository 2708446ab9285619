"""The first day: nothing is prepared in the account; setup, up, train, down, and setup undone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clouds.fresh import fresh
from tests.e2e.project import HELLO, Project, tiny

pytestmark = [
    pytest.mark.machine,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="each instance needs a network of its own, so root"),
]

PROFILE = """\
version: 1
name: tiny
cloud: {cloud}
region: {region}
resources: {{cpus: 2, memory: 8 GiB, disk: 12 GiB}}
max_duration: 30m
train: {{command: python train.py, outputs: [out]}}
"""
REGIONS = {"aws": "us-east-1", "gcp": "us-central1"}
HERE = "10.0.0.0/8"


@pytest.fixture(params=["aws", "gcp"])
def account(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Any, Project]]:
    if shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        pytest.skip("no sshd on this computer")
    with fresh(request.param) as cloud:
        project = tiny(tmp_path / "project", tmp_path / "state", HELLO)
        project.environ.update(cloud.env)
        text = PROFILE.format(cloud=request.param, region=REGIONS[request.param])
        (project.folder / "orch.yaml").write_text(text)
        yield request.param, cloud, project
        project.orch("down", "--discard")


def test_setup_up_train_down(account: tuple[str, Any, Project]) -> None:
    cloud, _, project = account
    refused = project.json("up", "orch.yaml", "--yes", code=5)["error"]
    assert "Nothing was created" in refused["exists"]
    unasked = project.json("setup", cloud, "--from", HERE, code=2)["error"]
    assert "needs your approval" in unasked["message"]
    assert unasked["next_command"].startswith("orch setup ") and unasked["next_command"].endswith("--yes")
    made = project.json("setup", cloud, "--from", HERE, "--yes")
    assert made["changed"]
    assert project.json("setup", cloud, "--from", HERE)["changed"] == []
    held = project.orch("up", "orch.yaml", "--yes")
    assert "admits ssh from anywhere" not in held.err
    project.orch("train")
    project.orch("down")
    assert project.json("setup", cloud, "--undo", "--yes")["changed"]
    assert project.json("setup", cloud, "--undo")["changed"] == []
