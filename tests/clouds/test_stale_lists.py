"""Lists that lag behind: no lease is closed and no key deleted while the instance runs, on either cloud."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.leases.down import down
from orchestrator.leases.status import status
from orchestrator.model import Bound, Need, Provider, Silent
from orchestrator.providers import open_provider
from orchestrator.session import machines
from orchestrator.session.project import Project
from tests.clouds.gcp_client import Google
from tests.unit.memory_cloud import leased, spec_for

NOTHING = (
    '<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
    "<requestId>none</requestId><reservationSet/></DescribeInstancesResponse>"
)
STALE_OF_AWS = {
    "action": "DescribeInstances",
    "body": NOTHING,
    "content_type": "text/xml;charset=UTF-8",
    "match": {"Filter.1.Name": "?*"},
}
STALE_OF_GOOGLE = {"method": "compute.instances.aggregatedList", "kind": "empty"}

Alive = Callable[[], list[str]]


def check(
    project: Project, provider: Provider, need: Need, alive: Alive, stale: Callable[[int], None]
) -> None:
    """Two stale empty lists must not close the lease or delete the key while the machine runs."""
    offer = provider.offers(need)[0]
    made = leased(project, "stale", provider, spec_for("stale", offer=offer, disk=need.disk))
    stale(2)
    (lease,) = status(folder=project.root, ask=True)
    assert lease.machine == made.id
    assert lease.state != "gone"
    stale(1000)
    seen: list[tuple[bool, bool]] = []

    class Watching(Silent):
        def say(self, text: str) -> None:
            del text
            seen.append((bool(alive()), project.identity("stale").exists()))

    report = down(folder=project.root, progress=Watching())
    assert seen[0] == (True, True)
    assert report.machines == (made.id,)
    assert alive() == []
    assert not project.identity("stale").exists()
    assert project.open_leases() == []


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(machines, "_POLL_SECONDS", 0.05)
    return Project.at(tmp_path)


def test_on_aws(shared_aws: Any, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = shared_aws
    for name, value in {**cloud.env, "ORCH_AWS_REGIONS": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    cloud.set(groups=["orch-ssh"], policy=None)

    def alive() -> list[str]:
        tagged = cloud.client("ec2").describe_instances()["Reservations"]
        found = [i for each in tagged for i in each["Instances"]]
        mine = [
            i
            for i in found
            if any((t["Key"], t["Value"]) == ("orch-lease", "stale") for t in i.get("Tags", ()))
        ]
        return [i["InstanceId"] for i in mine if i["State"]["Name"] in ("pending", "running")]

    def stale(times: int) -> None:
        cloud.faults({**STALE_OF_AWS, "times": times})

    need = Need("aws", memory=Bound(1 << 30), disk=8 << 30, arch="x86_64")
    try:
        check(project, open_provider("aws"), need, alive, stale)
    finally:
        cloud.clear_faults()


def test_on_google_cloud(google: Google, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in google.cloud.env.items():
        monkeypatch.setenv(name, value)
    assert "GOOGLE_CLOUD_PROJECT" in os.environ

    def alive() -> list[str]:
        return google.listed("labels.orch-lease=stale AND status=RUNNING")

    def stale(times: int) -> None:
        google.cloud.faults({**STALE_OF_GOOGLE, "times": times})

    need = Need("gcp", cpus=Bound(2), memory=Bound(8 << 30), disk=12 << 30, zone="us-central1-a")
    check(project, open_provider("gcp"), need, alive, stale)
