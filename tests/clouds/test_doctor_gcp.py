"""The doctor for Google Cloud: each thing that can lack is found, named and mended, and nothing is made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.cloud_doctor import examine as ask
from orchestrator.api.cloud_doctor import exit_code
from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Bound, Check, MachineSpec, Need, Offer, Readiness
from orchestrator.providers import open_provider, permissions
from orchestrator.providers.permissions.gcp import OWN_IMAGE
from tests import forked_orch
from tests.clouds.gcp import Cloud, running
from tests.clouds.gcp.permissions import NEEDED
from tests.clouds.gcp.world import OPEN

ROOT = Path(__file__).resolve().parents[2]
L4 = ROOT / "profiles/gcp-l4.yaml"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a nobody"
AS_NEW: dict[str, Any] = {
    "denied": [],
    "quotas": {},
    "networks": ["default", "orch"],
    "firewalls": [OPEN],
    "policies": {},
}
ELSEWHERE = (
    *("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "CLOUDSDK_AUTH_DISABLE_CREDENTIALS"),
    "GOOGLE_APPLICATION_CREDENTIALS",
)


@pytest.fixture(scope="module")
def served() -> Iterator[Cloud]:
    with running(machines=False) as made:
        yield made


@pytest.fixture
def cloud(served: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """As new, and the cloud of this process."""
    for name in [name for name in os.environ if name.startswith(("CLOUDSDK_", "ORCH_GCP_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name, value in served.env.items():
        monkeypatch.setenv(name, value)
    served.settings(**AS_NEW)
    served.clear_faults()
    return served


def check(readiness: Readiness, name: str) -> Check:
    (one,) = (each for each in readiness.checks if each.name == name)
    return one


def lacking(readiness: Readiness) -> list[str]:
    return [each.name for each in readiness.missing]


# ---------------------------------------------------------------- all is well


def test_who_lacks_nothing_is_told_so_and_only_calls_of_the_table_are_made(cloud: Cloud) -> None:
    before = len(cloud.state()["requests"])
    found = ask("gcp", L4)
    assert (exit_code(found), lacking(found), found.grant) == (0, [], None)
    assert {each.state for each in found.checks} == {"ok", "warning"}, "ssh is open to the world there"
    assert (found.account, found.region) == ("orch-test", "us-central1")
    assert found.offer is not None
    assert found.offer.instance_type == "g2-standard-4"
    assert found.endpoints["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"] == f"{cloud.url}/compute/v1/"
    known = {call for one in permissions.of("gcp") for call in one.calls}
    known |= {call for api in permissions.APIS for call in api.calls}
    made = {str(each["method"]) for each in cloud.state()["requests"][before:]}
    assert made <= known
    assert not made & {"compute.instances.insert", "compute.instances.delete"}


# ---------------------------------------------------------------- permissions


def test_each_permission_that_lacks_is_found(cloud: Cloud) -> None:
    """All but the one by which the rest would be seen, at once; each is a name of its own in the answer."""
    wanted = [
        one
        for one in permissions.of("gcp")
        if one.applies({}) and one.when != OWN_IMAGE and one.name != "compute.zones.list"
    ]
    cloud.settings(denied=[one.name for one in wanted])
    found = ask("gcp", L4)
    assert exit_code(found) == 3
    states = {each.name: each for each in found.checks if each.topic == "permission"}
    assert set(states) == {one.name for one in wanted} | {"compute.zones.list"}
    for one in wanted:
        spared = one.needed == {"doctor"} or one.instead
        assert states[one.name].state == ("could-not-tell" if spared else "missing")
        assert (one.instead or one.why) in states[one.name].detail
        assert one.name in str(states[one.name].remedy)
    assert states["compute.zones.list"].state == "ok"


def test_the_one_that_lacks_comes_with_the_commands_that_grant_it(cloud: Cloud) -> None:
    cloud.settings(denied=["compute.instances.delete"])
    found = ask("gcp", L4)
    assert (exit_code(found), lacking(found)) == (3, ["compute.instances.delete"])
    assert found.grant is not None
    make, bind = found.grant.splitlines()
    assert make.startswith("gcloud iam roles create orch_more --project=orch-test")
    assert make.endswith("--permissions=compute.instances.delete")
    assert "--role=projects/orch-test/roles/orch_more" in bind


def test_without_the_resource_manager_what_can_be_read_is_known(cloud: Cloud) -> None:
    cloud.settings(denied=["compute.instances.list"])
    cloud.faults({"method": "cloudresourcemanager.projects.testIamPermissions", "kind": "api_disabled"})
    found = ask("gcp", L4)
    manager = check(found, "cloudresourcemanager.googleapis.com")
    assert manager.state == "could-not-tell"
    assert "gcloud services enable cloudresourcemanager.googleapis.com" in str(manager.remedy)
    assert check(found, "compute.instances.list").state == "missing"
    assert check(found, "compute.zones.list").state == "ok"
    assert check(found, "compute.instances.create").state == "could-not-tell"
    assert lacking(found) == ["compute.instances.list"]


def test_machines_are_made_found_and_ended_with_the_tables_permissions_alone(cloud: Cloud) -> None:
    """All that the emulated cloud ever demands is refused, but for what the table says machines take."""
    mine = {one.name for one in permissions.of("gcp", needed="machines") if one.applies({})}
    demanded = {name for names in NEEDED.values() for name in names}
    demanded |= {
        "compute.instances.setServiceAccount",
        "iam.serviceAccounts.actAs",
        "compute.disks.setLabels",
    }
    cloud.settings(denied=sorted(demanded - mine))
    provider = open_provider("gcp")
    offer = provider.offers(Need("gcp", cpus=Bound(2), arch="x86_64", zone="us-central1-a"))[0]
    end = datetime.now(UTC) + timedelta(minutes=10)
    spec = MachineSpec("orch-doctor-test", 0, offer, 20 << 30, end, {"orch-lease": "doctor-test"}, KEY)
    made = provider.create(spec)
    assert [machine.id for machine in provider.list(spec.labels)] == [made.id]
    assert not provider.endpoint(made)
    provider.delete(made)


# ---------------------------------------------------------------- everything else


@pytest.mark.usefixtures("cloud")
def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = ask("gcp", L4)
    assert (exit_code(found), lacking(found)) == (3, ["credentials"])
    assert "gcloud auth application-default login" in str(check(found, "credentials").remedy)


@pytest.mark.usefixtures("cloud")
def test_no_project_and_one_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"):
        monkeypatch.delenv(name)
    found = ask("gcp", L4)
    assert (exit_code(found), lacking(found)) == (3, ["project"])
    assert "export GOOGLE_CLOUD_PROJECT" in str(check(found, "project").remedy)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "no-such-project")
    assert [each.detail for each in ask("gcp", L4).missing] == ["There is no project no-such-project."]


def test_an_api_that_is_off(cloud: Cloud) -> None:
    cloud.faults({"method": "compute.projects.get", "kind": "api_disabled"})
    found = ask("gcp", L4)
    assert (exit_code(found), lacking(found)) == (3, ["compute.googleapis.com"])
    enable = "gcloud services enable compute.googleapis.com --project=orch-test"
    assert check(found, "compute.googleapis.com").remedy == enable


def test_a_project_that_nobody_pays_for() -> None:
    from orchestrator.providers.gcp.faults import of_answer
    from orchestrator.providers.gcp.readiness_access import api

    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "BILLING_DISABLED"}
    unpaid = api("compute.googleapis.com", of_answer(403, {"message": "no", "details": [reason]}), "p")
    assert unpaid.state == "missing"
    assert unpaid.remedy == "gcloud billing projects link p --billing-account=ACCOUNT"


@pytest.mark.usefixtures("cloud")
def test_an_endpoint_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER"
    monkeypatch.setenv(name, "http://192.0.2.1/")
    with pytest.raises(ProviderError, match="never sent unencrypted") as error:
        ask("gcp", L4)
    assert name in error.value.message
    assert error.value.next_command == f"unset {name}"


@pytest.mark.usefixtures("cloud")
def test_a_region_that_is_none() -> None:
    found = ask("gcp", L4, region="us-centrel1")
    assert (exit_code(found), lacking(found)) == (5, ["us-centrel1"])
    assert "--region us-central1" in str(check(found, "us-centrel1").remedy)


def test_no_network_and_no_such_subnetwork(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.settings(networks=["orch"])
    found = ask("gcp", L4)
    assert (exit_code(found), lacking(found)) == (5, ["default"])
    assert "gcloud compute networks create default" in str(check(found, "default").remedy)
    monkeypatch.setenv("ORCH_GCP_SUBNETWORK", "elsewhere")
    assert lacking(ask("gcp", L4)) == ["elsewhere"]


def rule(**changed: Any) -> dict[str, Any]:
    return {**OPEN, **changed}


SHUT: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "another port": [rule(allowed=[{"IPProtocol": "tcp", "ports": ["80", "1000-2000"]}])],
    "another protocol": [rule(allowed=[{"IPProtocol": "udp"}])],
    "another tag": [rule(targetTags=["web"])],
    "another network": [rule(network="orch")],
    "disabled": [rule(disabled=True)],
    "outgoing": [rule(direction="EGRESS")],
    "tunnels alone": [rule(sourceRanges=["35.235.240.0/20"])],
    "denied first": [
        rule(),
        rule(name="no", priority=900, allowed=[], denied=[{"IPProtocol": "all"}], targetTags=[]),
    ],
}
LETS_IN: dict[str, list[dict[str, Any]]] = {
    "a range": [rule(allowed=[{"IPProtocol": "tcp", "ports": ["20-30"]}])],
    "everything": [rule(allowed=[{"IPProtocol": "all"}], targetTags=[])],
    "denied later": [rule(), rule(name="no", priority=65000, allowed=[], denied=[{"IPProtocol": "all"}])],
}
LETS_ONE_IN = {"one address": [rule(sourceRanges=["203.0.113.7/32"])]}


def test_rules_that_let_nobody_in(cloud: Cloud) -> None:
    from orchestrator.providers.gcp.readiness_calls import Questions
    from orchestrator.providers.gcp.readiness_place import Site, network
    from orchestrator.providers.gcp.request import Setting

    site = Site(Questions(cloud.env), Setting("orch-test"), "us-central1", (), 0)
    for rules, state in ((SHUT, "missing"), (LETS_IN, "warning"), (LETS_ONE_IN, "ok")):
        for name, given in rules.items():
            cloud.settings(firewalls=given)
            (firewall,) = (each for each in network(site) if each.name == "firewall")
            assert (name, firewall.state) == (name, state)
    assert "203.0.113.7/32 only" in firewall.detail


def test_what_an_organisation_forbids(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    enforced = {"booleanPolicy": {"enforced": True}}
    cloud.settings(
        policies={
            "compute.disableGuestAttributesAccess": enforced,
            "compute.requireOsLogin": {"booleanPolicy": {}},  # not in force
            "compute.vmExternalIpAccess": {"listPolicy": {"allValues": "DENY"}},
        }
    )
    found = ask("gcp", L4)
    forbidden = ["compute.disableGuestAttributesAccess", "compute.vmExternalIpAccess"]
    assert (exit_code(found), lacking(found)) == (5, forbidden)
    monkeypatch.setenv("ORCH_GCP_INTERNAL", "1")
    assert lacking(ask("gcp", L4)) == forbidden[:1]


@pytest.mark.parametrize(
    ("name", "policy", "state"),
    [
        ("compute.requireShieldedVm", {"booleanPolicy": {"enforced": True}}, "missing"),
        (
            "compute.trustedImageProjects",
            {"listPolicy": {"allowedValues": ["projects/ubuntu-os-cloud"]}},
            "missing",
        ),
        ("compute.trustedImageProjects", {"listPolicy": {"allValues": "ALLOW"}}, None),
        ("gcp.resourceLocations", {"listPolicy": {"allowedValues": ["in:europe-locations"]}}, "missing"),
        ("gcp.resourceLocations", {"listPolicy": {"allowedValues": ["in:us-locations"]}}, None),
        (
            "gcp.resourceLocations",
            {"listPolicy": {"allowedValues": ["in:low-carbon-locations", "in:eu-locations"]}},
            "could-not-tell",
        ),
        ("gcp.resourceLocations", {"listPolicy": {"deniedValues": ["in:us-central1-locations"]}}, "missing"),
    ],
)
def test_policies_that_a_gpu_machine_meets(
    cloud: Cloud, name: str, policy: dict[str, Any], state: str | None
) -> None:
    """docs.cloud.google.com/resource-manager/docs/organization-policy/org-policy-constraints"""
    cloud.settings(policies={name: policy})
    found = ask("gcp", L4)
    assert [each.state for each in found.checks if each.name == name] == ([state] if state else [])


def test_a_plain_machine_is_made_where_shielded_vms_are_demanded(cloud: Cloud) -> None:
    """Ubuntu's own image boots under Secure Boot; that of a GPU does not, and Google's refusal names why."""
    cloud.settings(policies={"compute.requireShieldedVm": {"booleanPolicy": {"enforced": True}}})
    provider = open_provider("gcp")
    plain = Offer("gcp", "e2-standard-2", "us-central1", "us-central1-a", 2, 8 << 30, "x86_64", 0.067)
    end = datetime.now(UTC) + timedelta(minutes=10)
    spec = MachineSpec("orch-shielded", 0, plain, 20 << 30, end, {"orch-lease": "shielded"}, KEY)
    provider.delete(provider.create(spec))
    gpu = replace(plain, instance_type="g2-standard-4", cpus=4, accelerator="L4", accelerator_count=1)
    with pytest.raises(ProviderError, match=r"constraints/compute\.requireShieldedVm") as refused:
        provider.create(replace(spec, id="orch-unshielded", offer=gpu, disk=100 << 30))
    assert refused.value.fault is Fault.INVALID


def test_quotas_that_are_short(cloud: Cloud) -> None:
    cloud.settings(quotas={"GPUS_ALL_REGIONS": 0, "NVIDIA_L4_GPUS": 0, "SSD_TOTAL_GB": 99})
    found = ask("gcp", L4, overrides=["resources.spot=false", "resources.disk=100GiB"])
    assert exit_code(found) == 4
    assert set(lacking(found)) == {"GPUS_ALL_REGIONS", "NVIDIA_L4_GPUS", "SSD_TOTAL_GB"}
    assert "us-central1: 0 of 99 in use; g2-standard-4 needs 100" in check(found, "SSD_TOTAL_GB").detail
    assert "console.cloud.google.com/iam-admin/quotas" in str(check(found, "NVIDIA_L4_GPUS").remedy)


def test_as_it_is_typed(cloud: Cloud) -> None:
    cloud.settings(denied=["compute.instances.create"])
    done = forked_orch.orch("doctor", "gcp", str(L4), cwd=ROOT, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 3, done.stderr
    assert "NO  permission   compute.instances.create" in done.stdout
    assert "--permissions=compute.instances.create" in done.stdout
    assert "Next: fix what is missing, then: orch doctor gcp" in done.stdout


# ---------------------------------------------------------------- zones without the GPU


def test_a_zone_with_n1_and_without_the_gpu_gives_way_to_the_next(cloud: Cloud) -> None:
    """The machine type's presence says nothing of the accelerator that is to be attached."""
    from tests.clouds.gcp.facts import load

    facts, attach = load(), "nvidia-tesla-t4"
    bare = next(
        zone
        for zone in facts.zones
        if facts.type_in(zone, "n1-standard-4") and zone not in facts.accelerators[attach]
    )
    region = bare.rpartition("-")[0]
    offer = Offer(
        "gcp",
        "n1-standard-4",
        region,
        bare,
        4,
        15 << 30,
        "x86_64",
        0.5,
        accelerator="T4",
        accelerator_count=1,
        attach=attach,
    )
    end = datetime.now(UTC) + timedelta(minutes=10)
    spec = MachineSpec("orch-t4", 0, offer, 60 << 30, end, {"orch-lease": "t4"}, KEY)
    with pytest.raises(ProviderError, match=attach) as refused:
        open_provider("gcp").create(spec)
    assert (refused.value.fault, refused.value.code) == (Fault.CAPACITY, "TypeNotInZone")
    assert cloud.calls("compute.acceleratorTypes.get")
