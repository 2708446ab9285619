"""Capacity that an account has reserved, from the profile to the end: plan, up, train, down."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.project import HELLO, Project, tiny

pytestmark = [
    pytest.mark.machine,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="each instance needs a network of its own, so root"),
]

PROFILE = """\
version: 1
name: held
cloud: {cloud}
zone: {zone}
resources: {{instance_type: {kind}, disk: 12 GiB}}
reservation: {reservation}
max_duration: 30m
train: {{command: python train.py, outputs: [out]}}
"""
AWS = {"cloud": "aws", "zone": "us-east-1a", "kind": "m7i.large", "reservation": "cr-0123456789abcdef0"}
GCP = {"cloud": "gcp", "zone": "us-central1-a", "kind": "n2-standard-2", "reservation": "night"}


@pytest.fixture(params=[(AWS, "default"), (AWS, "capacity-block"), (GCP, "default")])
def held(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[dict[str, str], str, Any, Project]]:
    """A profile, the kind of its reservation, and the cloud whose account holds one such machine."""
    if shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        pytest.skip("no sshd on this computer")
    names, kind = request.param
    with _running(names["cloud"]) as cloud:
        facts = {"zone": names["zone"], "type": names["kind"], "count": 1}
        if names["cloud"] == "aws":
            cloud.set(reservations={names["reservation"]: {**facts, "kind": kind}})
        else:
            cloud.settings(reservations={names["reservation"]: facts})
        project = tiny(tmp_path / "project", tmp_path / "state", HELLO)
        project.environ.update(cloud.env)
        (project.folder / "orch.yaml").write_text(PROFILE.format(**names))
        yield names, kind, cloud, project
        project.orch("down", "--discard")


def _running(cloud: str) -> Any:
    from tests.clouds import gcp
    from tests.clouds.ground_aws import grounded

    return grounded() if cloud == "aws" else gcp.running()


def launched(cloud: Any, names: dict[str, str]) -> Any:
    """What the machine's create call said of the reservation."""
    if names["cloud"] == "gcp":
        (insert,) = cloud.calls("compute.instances.insert")
        return insert["body"]["reservationAffinity"]
    (made,) = [i for r in cloud.client("ec2").describe_instances()["Reservations"] for i in r["Instances"]]
    return made


def test_plan_up_train_down(held: tuple[dict[str, str], str, Any, Project]) -> None:
    names, _, cloud, project = held
    shown = project.orch("plan", "orch.yaml").out
    assert names["reservation"] in shown and names["kind"] in shown
    project.orch("up", "orch.yaml", "--yes")
    if names["cloud"] == "gcp":
        assert launched(cloud, names)["values"] == [names["reservation"]]
    record = project.json("train", "--run-id", "one")
    assert record["exit"]["reason"] == "completed"
    assert (project.folder / "runs/one/outputs/out/note").read_text() == "hello"
    assert project.json("down")["proven_gone"] is True
    project.orch("up", "orch.yaml", "--yes")  # its capacity is free again


def test_where_the_reservation_is_used_up_nothing_else_is_rented(
    held: tuple[dict[str, str], str, Any, Project],
) -> None:
    names, _, cloud, project = held
    full = {names["reservation"]: {"zone": names["zone"], "type": names["kind"], "count": 0}}
    if names["cloud"] == "aws":
        cloud.set(reservations=full)
    else:
        cloud.settings(reservations=full)
    refused = project.json("up", "orch.yaml", "--yes", code=4 if names["cloud"] == "aws" else 5)["error"]
    assert "Nothing was created" in refused["exists"]
    assert names["reservation"] in refused["message"] or "reservation" in refused["message"]
    assert project.json("status")["leases"] == [] or project.orch("down").code == 0
