"""What `up` asks before anybody approves a price: network, quota, plan and policies of the first offer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator import catalog
from orchestrator.api import setup as setup_
from orchestrator.api import up
from orchestrator.errors import Fault, ProviderError
from orchestrator.leases.ready import require_ready
from orchestrator.profile import Profile, load
from orchestrator.session.project import Project
from tests.clouds.fresh import NEW_NETWORK, fresh

ROOT = Path(__file__).resolve().parents[2]
HERE = "203.0.113.7/32"
PROFILES = {"aws": ROOT / "profiles/aws-t4.yaml", "gcp": ROOT / "profiles/gcp-l4.yaml"}


@pytest.fixture(scope="module", params=["aws", "gcp"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    pytest.importorskip({"aws": "boto3", "gcp": "google.cloud.compute_v1"}[request.param])
    with fresh(request.param, machines=False) as cloud:
        yield request.param, cloud


@pytest.fixture
def account(served: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    name, cloud = served
    for key, value in cloud.env.items():
        monkeypatch.setenv(key, value)
    yield name, cloud
    calm(name, cloud)
    setup_.setup(name, undo=True)


def calm(name: str, cloud: Any) -> None:
    if name == "aws":
        cloud.set(quotas={}, policy=None, free_plan=False)
    else:
        cloud.settings(quotas={}, denied=[], policies={}, disabled=[], firewalls=[NEW_NETWORK])


def wanted(cloud: str) -> Profile:
    return load(PROFILES[cloud])


def asked(cloud: str) -> tuple[str, ...]:
    profile = wanted(cloud)
    return require_ready(profile, catalog.offers(profile.need(), clouds=(cloud,))).warnings


def test_a_fresh_account_is_told_of_setup(account: tuple[str, Any]) -> None:
    name, cloud = account
    if name == "gcp":
        cloud.settings(disabled=["compute.googleapis.com"], firewalls=[])
        with pytest.raises(ProviderError, match="not enabled"):
            asked(name)
        cloud.settings(disabled=[])
    with pytest.raises(ProviderError) as refused:
        asked(name)
    assert refused.value.fault is Fault.INVALID
    assert f"orch setup {name}" in str(refused.value.next_command)
    setup_.setup(name, source=HERE)
    assert asked(name) == ()


def test_a_quota_of_nothing_is_known_before_approval(account: tuple[str, Any]) -> None:
    """fastai/course-v3#165: the quota of GPUs of a new account is 0."""
    name, cloud = account
    setup_.setup(name, source=HERE)
    if name == "aws":
        cloud.set(quotas={"L-DB2E81BA": 0, "L-3819A6DF": 0})
    else:
        cloud.settings(quotas={"GPUS_ALL_REGIONS": 0})
    with pytest.raises(ProviderError) as refused:
        asked(name)
    assert (refused.value.fault, refused.value.exit_code) == (Fault.QUOTA, 4)
    assert "0 of 0" in refused.value.message, "needed beside granted"


def test_a_region_without_quota_leaves_the_next_one_first(account: tuple[str, Any]) -> None:
    name, cloud = account
    setup_.setup(name, source=HERE)
    profile = wanted(name)
    offers = catalog.offers(profile.need(), clouds=(name,))
    first = offers[0]
    other = {"aws": "us-west-2", "gcp": "us-east1"}[name]
    elsewhere = tuple(replace(offer, region=other, zone=f"{other}-b") for offer in offers)
    offers = (*offers, *elsewhere)
    if name == "aws":
        setup_.setup(name, source=HERE, region=other)
        cloud.set(quotas={f"{first.region}/{code}": 0 for code in ("L-DB2E81BA", "L-3819A6DF")})
    else:
        cloud.settings(quotas={f"{first.region}/{start}NVIDIA_L4_GPUS": 0 for start in ("", "PREEMPTIBLE_")})
    ready = require_ready(profile, offers)
    assert ready.offers == elsewhere
    (said,) = ready.warnings
    assert "left out for its quota" in said
    assert "To raise it: " in said


def test_ssh_open_to_the_world_is_a_warning(account: tuple[str, Any]) -> None:
    name, cloud = account
    if name == "aws":
        setup_.setup(name, source=HERE)
        ec2 = cloud.client("ec2", "us-east-1")
        (group,) = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["orch-ssh"]}])[
            "SecurityGroups"
        ]
        ec2.authorize_security_group_ingress(
            GroupId=group["GroupId"], IpProtocol="tcp", FromPort=22, ToPort=22, CidrIp="0.0.0.0/0"
        )
    else:
        cloud.settings(disabled=[], firewalls=[NEW_NETWORK])
    (said,) = asked(name)
    assert "admits ssh from anywhere" in said


def test_what_cannot_be_told_stops_nothing(account: tuple[str, Any]) -> None:
    name, cloud = account
    setup_.setup(name, source=HERE)
    if name == "aws":
        denied = ["ec2:DescribeSecurityGroups", "servicequotas:*", "freetier:*", "ec2:DescribeSubnets"]
        cloud.set(policy={"Statement": [{"Effect": "Allow", "NotAction": denied}]})
    else:
        cloud.settings(
            denied=[
                "compute.firewalls.list",
                "compute.networks.get",
                "compute.regions.get",
                "compute.projects.get",
                "orgpolicy.policy.get",
            ]
        )
    assert asked(name) == ()


def test_the_free_plan_and_a_policy_are_known_before_approval(account: tuple[str, Any]) -> None:
    name, cloud = account
    setup_.setup(name, source=HERE)
    if name == "aws":
        cloud.set(free_plan=True)
    else:
        cloud.settings(policies={"compute.vmExternalIpAccess": {"listPolicy": {"allValues": "DENY"}}})
    with pytest.raises(ProviderError, match=r"Free plan|public addresses") as refused:
        asked(name)
    assert refused.value.fault is Fault.INVALID


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_without_credentials_nobody_is_asked_to_approve(
    cloud: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip({"aws": "boto3", "gcp": "google.cloud.compute_v1"}[cloud])
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "CLOUDSDK_", "ORCH_"))]:
        monkeypatch.delenv(name)
    settings = {"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true", "HOME": str(tmp_path)}
    for name, value in {**settings, "ORCH_AWS_REGIONS": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ProviderError) as refused:
        up(PROFILES[cloud], folder=tmp_path, approve=lambda _: pytest.fail("somebody was asked"))
    error = refused.value
    assert (error.fault, error.exit_code) == (Fault.AUTH, 3)
    assert "credentials" in error.message
    assert error.exists == "Nothing was created; nothing costs money."
    assert {"aws": "aws configure", "gcp": "gcloud auth"}[cloud] in str(error.next_command)
    assert not Project.at(tmp_path).leases()
