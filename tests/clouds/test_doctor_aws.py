"""The doctor for AWS: each thing that can lack is found, named and mended, and nothing is made."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator import catalog
from orchestrator.api.cloud_doctor import examine as ask
from orchestrator.api.cloud_doctor import exit_code
from orchestrator.errors import Fault, ProviderError, UsageError
from orchestrator.model import AcceleratorNeed, Bound, Check, MachineSpec, Need, Offer, Readiness
from orchestrator.providers import open_provider, permissions
from orchestrator.providers.aws import freeplan
from orchestrator.providers.aws import readiness_access as access
from orchestrator.providers.aws import readiness_place as place
from orchestrator.providers.aws.clients import Clients
from orchestrator.providers.aws.readiness_simulation import Caller
from orchestrator.providers.aws.settings import read
from tests import forked_orch
from tests.clouds.aws import Cloud, running
from tests.clouds.aws.settings import ACCOUNT, USER
from tests.clouds.aws_asking import as_new

ROOT = Path(__file__).resolve().parents[2]
T4 = ROOT / "profiles/aws-t4.yaml"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a nobody"


@pytest.fixture(scope="module")
def served() -> Iterator[Cloud]:
    with running(machines=False, groups=["orch-ssh"]) as made:
        yield made


@pytest.fixture
def cloud(served: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """As new, and the cloud of this process; whatever the test does, it makes no instance."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "ORCH_AWS_"))]:
        monkeypatch.delenv(name)
    for name, value in served.env.items():
        monkeypatch.setenv(name, value)
    return as_new(served)


def check(readiness: Readiness, name: str) -> Check:
    (one,) = (each for each in readiness.checks if each.name == name)
    return one


def lacking(readiness: Readiness) -> list[str]:
    return [each.name for each in readiness.missing]


def denying(*actions: str) -> dict[str, Any]:
    """A policy that allows all but these."""
    return {"Statement": [{"Effect": "Allow", "NotAction": list(actions)}]}


# ---------------------------------------------------------------- all is well


def test_who_lacks_nothing_is_told_so(cloud: Cloud) -> None:
    found = ask("aws", T4)
    assert (exit_code(found), lacking(found), found.grant) == (0, [], None)
    assert {each.state for each in found.checks} == {"ok", "warning"}
    assert [each.topic for each in found.checks if each.state == "warning"] == ["network"]
    assert found.account == "123456789012"
    assert found.identity.endswith(":user/orch-tester")
    assert found.endpoints["ec2"] == cloud.url
    assert found.offer is not None
    assert found.offer.instance_type == "g4dn.xlarge"


def test_every_permission_is_looked_at_and_every_call_is_of_the_table(cloud: Cloud) -> None:
    found = ask("aws", T4, overrides=["resources.spot=true"])
    looked = {each.name for each in found.checks if each.topic == "permission"}
    needed = {one.name for one in permissions.of("aws") if one.applies({}) and not one.free}
    assert looked == needed
    known = {call.replace("-", "") for one in permissions.of("aws") for call in one.calls}
    made = {(each["service"], each["action"]) for each in cloud.state()["requests"]}
    assert {f"{service}.{_snake(action)}" for service, action in made} <= known


def _snake(action: str) -> str:
    from botocore import xform_name

    return str(xform_name(action))


def test_nothing_is_made(cloud: Cloud) -> None:
    before = len(cloud.instances())
    ask("aws", T4)
    assert len(cloud.instances()) == before
    for action in ("RunInstances", "TerminateInstances", "CreateTags"):
        tried = cloud.requests(action)
        assert tried
        assert all(each["parameters"]["DryRun"] == "true" for each in tried)
    (launch,) = cloud.requests("RunInstances")
    assert launch["code"] == "DryRunOperation"
    assert launch["parameters"]["InstanceType"] == "g4dn.xlarge"


# ---------------------------------------------------------------- permissions


def test_the_one_permission_that_lacks_is_found(cloud: Cloud) -> None:
    """Each in turn, by the same questions that `examine` asks."""
    clients = Clients(read({}), lambda: ("us-east-1",))
    site = place.Site(clients, read({}), "us-east-1", (offer("g4dn.xlarge"),), 100 << 30)
    found = place.look(site)
    caller = Caller(clients, "us-east-1", f"arn:aws:iam::{ACCOUNT}:user/{USER}", ACCOUNT)
    situation = access.Situation(found.request, whole=found.whole, offer=found.offer, environ={})
    probed = [one for one in permissions.of("aws") if one.applies({}) and not one.free]
    probed.remove(permissions.named("iam:CreateServiceLinkedRole"))
    for permission in probed:
        cloud.set(policy=denying(permission.name))
        others = {each.name: each for each in access.look(caller, situation) if each.state != "ok"}
        one = others.pop(permission.name)
        can_do_without = permission.needed == {"doctor"} or permission.instead
        assert one.state == ("could-not-tell" if can_do_without else "missing")
        assert (permission.instead or permission.why) in one.detail
        assert permission.name in str(one.remedy)
        assert permission.name == "iam:SimulatePrincipalPolicy" or not others


def offer(name: str) -> Offer:
    found = catalog.offers(
        Need("aws", arch="x86_64", accelerator=AcceleratorNeed(name="T4")), clouds=("aws",)
    )
    return next(each for each in found if each.instance_type == name)


@pytest.mark.parametrize("lost", ["ec2:RunInstances", "ec2:TerminateInstances"])
def test_what_lacks_is_granted_by_what_is_shown(cloud: Cloud, lost: str) -> None:
    cloud.set(policy=denying(lost))
    found = ask("aws", T4)
    assert (exit_code(found), lacking(found)) == (3, [lost])
    assert found.grant is not None
    document = json.loads(found.grant.split("<<'END'\n")[1].split("\nEND\n")[0])
    assert document == permissions.policy([permissions.named(lost)])
    assert "attach-user-policy --user-name orch-tester" in found.grant
    allowed = denying(lost)["Statement"] + document["Statement"]
    cloud.set(policy={"Statement": allowed})
    assert exit_code(ask("aws", T4)) == 0


def test_a_policy_of_the_table_lets_everything_through(cloud: Cloud) -> None:
    """Also what it allows for orch's own machines alone, of which there is none to try it on."""
    cloud.set(policy=permissions.policy(permissions.of("aws")))
    found = ask("aws", T4)
    assert (exit_code(found), lacking(found)) == (0, [])
    assert check(found, "ec2:TerminateInstances").state == "ok"


def test_what_cannot_be_told_is_not_called_missing(cloud: Cloud) -> None:
    cloud.set(policy=denying("iam:SimulatePrincipalPolicy"))
    ending = check(ask("aws", T4), "ec2:TerminateInstances")
    assert ending.state == "could-not-tell"
    assert "iam:SimulatePrincipalPolicy" in ending.detail


def test_an_explicit_deny_is_told_from_a_lack(cloud: Cloud) -> None:
    statements = [{"Effect": "Allow", "Action": "*"}, {"Effect": "Deny", "Action": "ec2:TerminateInstances"}]
    cloud.set(policy={"Statement": statements})
    assert "denies it" in check(ask("aws", T4), "ec2:TerminateInstances").detail


def test_machines_are_made_found_and_ended_with_the_tables_permissions_alone(cloud: Cloud) -> None:
    cloud.set(policy=permissions.policy(permissions.of("aws", needed="machines")))
    provider = open_provider("aws")
    offer = provider.offers(Need("aws", cpus=Bound(2), arch="x86_64", region="us-east-1"))[0]
    end = datetime.now(UTC) + timedelta(minutes=10)
    spec = MachineSpec("orch-doctor-test", 0, offer, 10 << 30, end, {"orch-lease": "doctor-test"}, KEY)
    made = provider.create(spec)
    assert [machine.id for machine in provider.list(spec.labels)] == [made.id]
    own = ask("aws", region="us-east-1")
    assert check(own, "ec2:TerminateInstances").state == "ok"  # tried on the machine that is there
    provider.delete(made)
    assert {each["code"] for each in cloud.state()["requests"]} <= {
        *("", "DryRunOperation", "AccessDenied", "AccessDeniedException"),  # the doctor's own, refused
        *("UnauthorizedOperation", "ParameterNotFound"),
    }
    assert not any(each["code"] == "UnauthorizedOperation" for each in cloud.requests("RunInstances"))


# ---------------------------------------------------------------- everything else


def test_no_credentials(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    found = ask("aws")
    assert (exit_code(found), lacking(found)) == (3, ["credentials"])
    assert "aws configure" in str(check(found, "credentials").remedy)
    assert cloud.state()["requests"] == []


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(("name", "value"), [("AWS_ACCESS_KEY_ID", "AKIANOBODY"), ("AWS_PROFILE", "nobody")])
def test_credentials_that_do_not_count(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    found = ask("aws")
    assert (exit_code(found), lacking(found)) == (3, ["credentials"])
    assert not found.identity


@pytest.mark.usefixtures("cloud")
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    found = ask("aws")
    assert exit_code(found) == 5
    assert "127.0.0.1:9" in found.missing[0].detail


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(("region", "near"), [("eu-wurst-1", "eu-west-1"), ("us-wast-2", "us-west-2")])
def test_a_region_that_is_none(region: str, near: str) -> None:
    found = ask("aws", T4, region=region)
    assert (exit_code(found), lacking(found)) == (5, [region])
    assert near in str(check(found, region).remedy)


@pytest.mark.usefixtures("cloud")
def test_a_region_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_AWS_REGIONS", "us-west-2,eu-west-1")
    found = ask("aws", T4)
    assert (exit_code(found), lacking(found)) == (5, ["us-east-1"])
    wanted = "export ORCH_AWS_REGIONS=us-west-2,eu-west-1,us-east-1"
    assert check(found, "us-east-1").remedy == wanted


@pytest.fixture
def no_group(cloud: Cloud) -> Iterator[Any]:
    """A client of EC2, in a region without the security group; it is there again afterwards."""
    ec2 = cloud.client("ec2")
    ec2.delete_security_group(GroupName="orch-ssh")
    yield ec2
    for group in ec2.describe_security_groups(GroupNames=["orch-ssh"])["SecurityGroups"]:
        ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[ssh_from("0.0.0.0/0")])


def ssh_from(source: str) -> dict[str, Any]:
    return {"IpProtocol": "tcp", "FromPort": 20, "ToPort": 30, "IpRanges": [{"CidrIp": source}]}


def test_no_security_group_and_then_one_that_is_shut(no_group: Any) -> None:
    found = ask("aws")
    assert (exit_code(found), lacking(found)) == (5, ["security group"])
    assert "orch setup aws" in str(check(found, "security group").remedy)
    vpc = no_group.describe_vpcs()["Vpcs"][0]["VpcId"]
    made = no_group.create_security_group(GroupName="orch-ssh", Description="ssh", VpcId=vpc)["GroupId"]
    found = ask("aws")
    assert lacking(found) == [made]
    assert f"authorize-security-group-ingress --region us-east-1 --group-id {made}" in str(
        check(found, made).remedy
    )
    no_group.authorize_security_group_ingress(GroupId=made, IpPermissions=[ssh_from("203.0.113.7/32")])
    found = ask("aws")
    assert exit_code(found) == 0
    assert "203.0.113.7/32 only" in check(found, made).detail


@pytest.mark.usefixtures("cloud")
def test_no_subnet_and_no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_AWS_SUBNET", "subnet-0123456789abcdef0")
    monkeypatch.setenv("ORCH_AWS_IMAGE", "ami-0123456789abcdef0")
    found = ask("aws", T4)
    assert (exit_code(found), lacking(found)) == (5, ["subnet", "ami-0123456789abcdef0"])


@pytest.mark.parametrize(
    ("spot", "code", "limit", "enough"),
    [("false", "L-DB2E81BA", 3, 4), ("true", "L-3819A6DF", 0, 4)],
)
def test_a_quota_that_is_short(cloud: Cloud, spot: str, code: str, limit: int, enough: int) -> None:
    cloud.set(quotas={code: limit})
    found = ask("aws", T4, overrides=[f"resources.spot={spot}"])
    assert (exit_code(found), lacking(found)) == (4, [code])
    one = check(found, code)
    assert f"0 of {limit} vCPUs in use; g4dn.xlarge needs 4" in one.detail
    assert f"--quota-code {code} --desired-value" in str(one.remedy)
    cloud.set(quotas={code: enough})
    assert exit_code(ask("aws", T4, overrides=[f"resources.spot={spot}"])) == 0


def test_what_runs_counts_against_the_quota(cloud: Cloud) -> None:
    provider = open_provider("aws")
    offer = provider.offers(Need("aws", cpus=Bound(4), arch="x86_64", region="us-east-1"))[0]
    end = datetime.now(UTC) + timedelta(minutes=10)
    spec = MachineSpec("orch-counted", 0, offer, 10 << 30, end, {"orch-lease": "counted"}, KEY)
    made = provider.create(replace(spec, offer=offer))
    try:
        cloud.set(quotas={"L-1216C47A": 5})
        found = ask("aws", region="us-east-1")
        assert lacking(found) == ["L-1216C47A"]
        assert "4 of 5 vCPUs in use" in check(found, "L-1216C47A").detail
    finally:
        provider.delete(made)


def test_profiles_of_other_clouds_and_clouds_that_are_none() -> None:
    with pytest.raises(UsageError, match=r"gcp-l4\.yaml is for gcp"):
        ask("aws", ROOT / "profiles/gcp-l4.yaml")
    with pytest.raises(UsageError, match="azure"):
        ask("azure")


# ---------------------------------------------------------------- as it is typed


def orch(env: Mapping[str, str], *words: str, code: int = 0) -> str:
    done = forked_orch.orch(*words, cwd=ROOT, env={**os.environ, **env, "NO_COLOR": "1"})
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


def test_as_it_is_typed(cloud: Cloud) -> None:
    cloud.set(policy=denying("ec2:TerminateInstances"), quotas={"L-DB2E81BA": 0})
    text = orch(cloud.env, "doctor", "aws", str(T4), code=3)
    assert "NO  permission   ec2:TerminateInstances" in text
    assert "NO  quota        L-DB2E81BA" in text
    assert "1 permission missing" in text
    cloud.set(policy=None, quotas={})
    value = json.loads(orch(cloud.env, "doctor", "aws", str(T4), "--json"))
    assert (value["schema"], value["ready"], value["exit_code"]) == ("orch.cloud-doctor/1", True, 0)
    assert {"topic", "name", "state", "detail", "remedy"} == set(value["checks"][0])


def test_up_that_is_refused_leads_to_the_doctor(cloud: Cloud, tmp_path: Path) -> None:
    from tests.e2e.project import tiny

    cloud.set(policy=denying("ec2:RunInstances"))
    project = tiny(tmp_path / "project", tmp_path / "state", "print()\n")
    text = (ROOT / "tests/e2e/test_aws.py").read_text().partition('PROFILE = """\\\n')[2].partition('"""')[0]
    (project.folder / "orch.yaml").write_text(text)
    project.environ.update(cloud.env)
    error = project.json("up", "orch.yaml", "--yes", code=3)["error"]
    assert error["next_command"] == "orch doctor aws"


# ---------------------------------------------------------------- the Free plan


def test_the_free_plan_is_named_with_the_way_out(cloud: Cloud) -> None:
    """aws-samples/eks-workshop-v2#1644: a new account may launch six small types."""
    cloud.set(free_plan=True)
    found = ask("aws", T4)
    plan = check(found, "account plan")
    assert plan.state == "missing"
    assert "not g4dn.xlarge" in plan.detail
    assert plan.remedy == freeplan.UPGRADE
    assert exit_code(found) != 0


def _refused(type_: str = "m5.large") -> ProviderError:
    provider = open_provider("aws")
    offer = provider.offers(Need("aws", cpus=Bound(2), arch="x86_64", region="us-east-1"))[0]
    end = datetime.now(UTC) + timedelta(minutes=10)
    spec = MachineSpec(
        "orch-free", 0, replace(offer, instance_type=type_), 20 << 30, end, {"orch-lease": "free"}, KEY
    )
    with pytest.raises(ProviderError) as refused:
        provider.create(spec)
    return refused.value


def test_a_launch_that_the_free_plan_refuses_is_explained_by_the_plan(cloud: Cloud) -> None:
    cloud.set(free_plan=True)
    error = _refused()
    assert (error.fault, error.code, error.next_command) == (Fault.INVALID, "FreePlan", freeplan.UPGRADE)
    assert "m7i-flex.large" in error.message
    cloud.set(policy=denying("freetier:GetAccountPlanState"))
    error = _refused()
    assert error.code == "InvalidParameterCombination"
    assert "get-account-plan-state" in str(error.next_command)


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("profile", [None, T4])
def test_it_looks_where_up_would_begin(
    profile: Path | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    if profile:
        text = profile.read_text().replace("region: us-east-1", "")
        profile = tmp_path / "p.yaml"
        profile.write_text(text.replace("../examples", str(ROOT / "examples")))
    assert ask("aws", profile).region == "eu-central-1"
