"""orch gc with the real client libraries on emulated clouds, with no more than terraform grants the reaper;
and on this computer, with real machines."""

from __future__ import annotations

import json
import runpy
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.leases import reaper
from orchestrator.model import LABEL_EXPIRES, LABEL_LEASE, Bound, Machine, MachineSpec, Need, Provider
from orchestrator.providers import open_provider
from tests.clouds import aws, gcp
from tests.clouds.gcp import permissions as emulated
from tests.clouds.ground_aws import grounded
from tests.conftest import ROOT
from tests.e2e.project import Project

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a nobody"
CALLS: dict[str, tuple[str, ...]] = runpy.run_path(str(ROOT / "scripts/terraform_policies.py"))["GC_CALLS"]


def document(name: str) -> Any:
    return json.loads((ROOT / "terraform" / name).read_text())


def spec(provider: Provider, need: Need, name: str, minutes: float) -> MachineSpec:
    """A machine whose label says that its deadline was so long ago, and which goes on all the same."""
    now = datetime.now(UTC)
    expires = int((now - timedelta(minutes=minutes)).timestamp())
    labels = {LABEL_LEASE: name, LABEL_EXPIRES: str(expires)}
    far = now.replace(microsecond=0) + timedelta(hours=1)
    return MachineSpec(f"orch-{name}", 0, provider.offers(need)[0], need.disk, far, labels, KEY)


def two(provider: Provider, need: Need) -> tuple[Machine, Machine]:
    """One that is late and one that is not, both listed."""
    made = [provider.create(spec(provider, need, name, m)) for name, m in (("late", 30), ("good", -30))]
    end = time.monotonic() + 60
    while {one.id for one in provider.list({})} != {one.id for one in made}:
        assert time.monotonic() < end
        time.sleep(0.05)
    return made[0], made[1]


@pytest.fixture
def empty(tmp_path: Path) -> Project:
    return Project(tmp_path, tmp_path / "state")


# ---------------------------------------------------------------- AWS


@pytest.fixture(scope="module")
def aws_cloud() -> Iterator[aws.Cloud]:
    with grounded(machines=False) as cloud:
        yield cloud


def test_on_aws_with_what_terraform_grants(
    aws_cloud: aws.Cloud, empty: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {**aws_cloud.env, "ORCH_AWS_REGIONS": "us-east-1"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    empty.environ.update(environ)
    need = Need("aws", memory=Bound(1 << 30), disk=8 << 30, arch="x86_64")
    provider = open_provider("aws")
    aws_cloud.set(policy=document("aws/policy.json"))
    late, good = two(provider, need)
    aws_cloud.set(policy=document("aws/reaper-policy.json"))
    aws_cloud.forget_requests()
    report = empty.json("gc", "--others", "--cloud", "aws")
    assert {one["id"]: one["outcome"] for one in report["machines"]} == {late.id: "ended", good.id: "left"}
    made = {f"{one['service']}.{_snake(one['action'])}" for one in aws_cloud.state()["requests"]}
    made = {call.replace("monitoring.", "cloudwatch.") for call in made}
    assert {"ec2.describe_instances", "ec2.terminate_instances"} <= made <= set(CALLS["aws"])
    aws_cloud.set(policy=None)
    provider.delete(good)


def test_the_reaper_s_function_looks_in_every_region(
    aws_cloud: aws.Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Lambda calls it, with the reaper's policy; a machine that stays fails the call."""
    wanted = {reaper.CLOUD: "aws", "ORCH_STATE_HOME": str(tmp_path / "state")}
    for name, value in {**aws_cloud.env, **wanted}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCH_AWS_REGIONS", "us-east-1")
    provider = open_provider("aws")
    late, good = two(provider, Need("aws", memory=Bound(1 << 30), disk=8 << 30, arch="x86_64"))
    monkeypatch.setenv("ORCH_AWS_REGIONS", "all")
    readers = {"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"}
    aws_cloud.set(policy={"Version": "2012-10-17", "Statement": [readers]})
    with pytest.raises(reaper.Unproven, match=late.id):
        reaper.handler({}, None)
    aws_cloud.set(policy=document("aws/reaper-policy.json"))
    aws_cloud.forget_requests()
    report = reaper.handler({}, None)
    outcomes = {one["id"]: one["outcome"] for one in report["machines"]}
    assert outcomes == {late.id: "ended", good.id: "left"}
    asked = {one["region"] for one in aws_cloud.requests("DescribeInstances")}
    assert len(asked) > 16 and "sa-east-1" in asked
    aws_cloud.set(policy=None)
    provider.delete(good)


def test_an_end_that_aws_refuses_is_unproven(
    aws_cloud: aws.Cloud, empty: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {**aws_cloud.env, "ORCH_AWS_REGIONS": "us-east-1"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    empty.environ.update(environ)
    provider = open_provider("aws")
    late, good = two(provider, Need("aws", memory=Bound(1 << 30), disk=8 << 30, arch="x86_64"))
    aws_cloud.set(policy={"Statement": [{"Effect": "Allow", "Action": "ec2:Describe*"}]})
    refused = empty.json("gc", "--others", "--cloud", "aws", code=8)
    outcomes = {one["id"]: one["outcome"] for one in refused["machines"]}
    assert outcomes == {late.id: "unproven", good.id: "left"}
    assert "ec2:TerminateInstances" in next(
        one["reason"] for one in refused["machines"] if one["id"] == late.id
    )
    aws_cloud.set(policy=None)
    provider.delete(late)
    provider.delete(good)


def _snake(action: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in action).strip("_")


# ---------------------------------------------------------------- Google Cloud


@pytest.fixture(scope="module")
def gcp_cloud() -> Iterator[gcp.Cloud]:
    with gcp.running(machines=False) as cloud:
        yield cloud


@pytest.mark.slow
def test_on_google_cloud_with_what_terraform_grants(
    gcp_cloud: gcp.Cloud, empty: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in gcp_cloud.env.items():
        monkeypatch.setenv(name, value)
    empty.environ.update(gcp_cloud.env)
    need = Need("gcp", cpus=Bound(2), memory=Bound(8 << 30), disk=12 << 30, zone="us-central1-a")
    provider = open_provider("gcp")
    late, good = two(provider, need)
    before = len(gcp_cloud.state()["requests"])
    gcp_cloud.settings(denied=_but(document("gcp/reaper-roles.json")))
    report = empty.json("gc", "--others", "--cloud", "gcp")
    assert {one["id"]: one["outcome"] for one in report["machines"]} == {late.id: "ended", good.id: "left"}
    made = {one["method"] for one in gcp_cloud.state()["requests"][before:] if one.get("method")}
    assert {"compute.instances.delete"} <= made <= set(CALLS["gcp"])
    gcp_cloud.settings(denied=[])
    provider.delete(good)


def _but(roles: dict[str, Any]) -> list[str]:
    """Every permission that the emulated cloud knows, but those."""
    granted = {name for role in roles.values() for name in role["permissions"]}
    return sorted({name for names in emulated.NEEDED.values() for name in names} - granted)


# ---------------------------------------------------------------- this computer


@pytest.mark.machine
def test_on_this_computer(empty: Project) -> None:
    need = Need("local", cpus=Bound(1), memory=Bound(256 << 20), disk=256 << 20)
    provider = open_provider("local", state=empty.state)
    late, good = two(provider, need)
    dry = empty.json("gc", "--others", "--dry-run")
    assert dry["clouds"] == ["local"]
    assert {one["id"]: one["outcome"] for one in dry["machines"]} == {late.id: "due", good.id: "left"}
    assert {one.id for one in provider.list({})} == {late.id, good.id}
    report = empty.json("gc", "--others")
    assert report["schema"] == "orch.gc/1"
    assert {one["id"]: one["outcome"] for one in report["machines"]} == {late.id: "ended", good.id: "left"}
    assert [one.id for one in provider.list({})] == [good.id]
    again = empty.json("gc", "--others")
    assert [one["outcome"] for one in again["machines"]] == ["left"]
    provider.delete(good)
