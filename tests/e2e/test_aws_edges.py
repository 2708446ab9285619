"""AWS where it is awkward: machines accepted and then refused, spot taken back, no public address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clouds.aws import Cloud
from tests.clouds.ground_aws import grounded
from tests.e2e.project import Project, tiny

pytestmark = [pytest.mark.machine, pytest.mark.slow]

PROFILE = """\
version: 1
name: tiny
cloud: aws
region: us-east-1
resources: {{cpus: 2, memory: 1 GiB, disk: 10 GiB, spot: {spot}}}
max_duration: 30m
train:
  command: python train.py
  outputs: [out]
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with grounded() as made:
        yield made


@pytest.fixture
def project(cloud: Cloud, tmp_path: Path, machines: Path) -> Iterator[Project]:
    """A tiny project for that cloud, not up yet; whatever a test leaves running is ended."""
    cloud.clear_faults()
    cloud.forget_requests()
    made = tiny(tmp_path / "project", machines, "print('hello')\n")
    profile(made)
    made.environ.update(cloud.env)
    yield made
    cloud.clear_faults()
    made.orch("down", "--discard")
    assert alive(cloud) == []


def profile(project: Project, *, spot: str = "false") -> None:
    (project.folder / "orch.yaml").write_text(PROFILE.format(spot=spot))


def up(project: Project, *, code: int = 0) -> dict[str, Any]:
    return project.json("up", "orch.yaml", "--yes", code=code)


def alive(cloud: Cloud) -> list[str]:
    return [i["id"] for i in cloud.instances() if i["state"] not in ("terminated", "shutting-down")]


# ---------------------------------------------------------------- accepted, and then refused


def test_a_zone_that_fails_after_it_accepted_gives_way_to_the_next(project: Project, cloud: Cloud) -> None:
    """RunInstances succeeds twice; the machine of the first zone ends at launch, for want of capacity."""
    cloud.faults({"action": "Boot", "code": "Server.InsufficientInstanceCapacity", "zone": "us-east-1a"})
    held = up(project)
    first, second = held["attempts"]
    assert (first["zone"], first["outcome"]) == ("us-east-1a", "capacity")
    assert "Server.InsufficientInstanceCapacity" in first["message"]
    assert (second["zone"], second["outcome"]) == (held["zone"], "accepted")
    assert held["zone"] != "us-east-1a"
    assert [request["status"] for request in cloud.requests("RunInstances")] == [200, 200]
    assert alive(cloud) == [held["machine"]]
    assert held["cost"] < held["price"] / 10  # of the machine that serves alone


@pytest.mark.parametrize(
    ("reason", "code", "words"),
    [
        ("Client.VolumeLimitExceeded", 4, ("L-7A658B76", "us-east-1", "servicequotas")),
        ("Client.InternalError", 5, ("KMS", "us-east-1a")),
    ],
)
def test_what_no_other_zone_would_mend_stops(
    project: Project, cloud: Cloud, reason: str, code: int, words: tuple[str, ...]
) -> None:
    cloud.faults({"action": "Boot", "code": reason, "times": -1})
    error = up(project, code=code)["error"]
    for word in (reason, *words):
        assert word in error["message"]
    assert "nothing costs" in error["exists"]
    assert len(cloud.requests("RunInstances")) == 1
    (attempt,) = project.json("status")["leases"][0]["attempts"]
    assert attempt["outcome"] == {4: "quota", 5: "invalid"}[code]
    assert project.json("status")["leases"][0]["cost"] == 0
