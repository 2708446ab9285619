"""The emulated clouds place machines close together as the real ones do, and refuse as they do."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("moto")
pytest.importorskip("google.cloud.compute_v1")

from google.api_core import exceptions
from google.cloud import compute_v1
from moto.ec2.models.instance_types import INSTANCE_TYPES

from orchestrator import catalog
from orchestrator.model import clouds
from tests.clouds.aws import Cloud
from tests.clouds.aws_asking import await_state, await_that, launch, refused
from tests.clouds.gcp.placing import COMPACT
from tests.clouds.gcp_client import PROJECT, UBUNTU, Google

TAGGED = [{"ResourceType": "placement-group", "Tags": [{"Key": "colour", "Value": "blue"}]}]


def test_a_placement_group_of_aws_is_in_one_zone_and_outlives_no_member(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    ec2.create_placement_group(GroupName="near", Strategy="cluster", TagSpecifications=TAGGED)
    assert refused(lambda: ec2.create_placement_group(GroupName="near", Strategy="cluster")) == (
        "InvalidPlacementGroup.Duplicate",
        400,
    )
    by_tag = [{"Name": "tag:colour", "Values": ["bl*"]}]
    (found,) = ec2.describe_placement_groups(Filters=by_tag)["PlacementGroups"]
    assert (found["GroupName"], found["Strategy"], found["State"]) == ("near", "cluster", "available")
    member = launched(cloud, "near", "us-east-1a")
    assert await_state(cloud, member, "running")["Placement"]["GroupName"] == "near"
    for call, code in (
        (lambda: launched(cloud, "near", "us-east-1b"), "InvalidPlacementGroup.InUse"),
        (lambda: launched(cloud, "far", "us-east-1a"), "InvalidPlacementGroup.Unknown"),
        (lambda: launched(cloud, "near", "us-east-1a", "t3.micro"), "InvalidParameterCombination"),
        (lambda: ec2.delete_placement_group(GroupName="near"), "InvalidPlacementGroup.InUse"),
        (lambda: ec2.delete_placement_group(GroupName="far"), "InvalidPlacementGroup.Unknown"),
    ):
        assert refused(call)[0] == code
    ec2.terminate_instances(InstanceIds=[member])
    await_state(cloud, member, "terminated")
    ec2.delete_placement_group(GroupName="near")
    assert ec2.describe_placement_groups(Filters=by_tag)["PlacementGroups"] == []


def launched(cloud: Cloud, group: str, zone: str, kind: str = "c6i.large") -> str:
    placed = {"GroupName": group, "AvailabilityZone": zone}
    return str(launch(cloud, InstanceType=kind, Placement=placed)["InstanceId"])


def test_types_of_aws_are_placed_together_where_aws_says_so() -> None:
    """By the table of moto, which is AWS's own."""
    told = {name: facts.get("PlacementGroupInfo", {}) for name, facts in INSTANCE_TYPES.items()}
    known = {kind.instance_type for kind in catalog.load("aws").kinds} & set(told)
    can = {name for name in known if "cluster" in told[name].get("SupportedStrategies", ())}
    assert known - can and {name for name in known if clouds.traits("aws").places_together(name)} == can


def test_types_of_google_are_placed_together_where_google_says_so() -> None:
    known = {kind.instance_type for kind in catalog.load("gcp").kinds}
    asked = {name for name in known if clouds.traits("gcp").places_together(name)}
    assert asked == {name for name in known if name.partition("-")[0] in COMPACT}
    assert "n1-standard-1" not in asked and "e2-standard-2" not in asked and "n2-standard-2" in asked


def policies(google: Google) -> Any:
    from google.api_core.client_options import ClientOptions
    from google.auth.credentials import AnonymousCredentials

    options = ClientOptions(api_endpoint=google.cloud.url)
    return compute_v1.ResourcePoliciesClient(credentials=AnonymousCredentials(), client_options=options)


def test_a_policy_of_google_is_of_one_region_and_outlives_no_member(google: Google) -> None:
    client = policies(google)
    where = {"project": PROJECT, "region": "us-central1"}

    def insert(**wanted: Any) -> Any:
        made = compute_v1.ResourcePolicy.from_json(json.dumps(wanted))
        return client.insert_unary(**where, resource_policy_resource=made, retry=None)

    near = {"name": "near", "groupPlacementPolicy": {"collocation": "COLLOCATED"}}
    insert(**near)
    with pytest.raises(exceptions.Conflict):
        insert(**near)
    with pytest.raises(exceptions.BadRequest, match="groupPlacementPolicy"):
        insert(name="far")
    await_that(lambda: client.get(**where, resource_policy="near").status == "READY")
    member = google.made(machine("near", "n2-standard-2"))
    assert [link.rpartition("/")[2] for link in member.resource_policies] == ["near"]
    for body, words in (
        (machine("far", "n2-standard-2"), "cannot be found"),
        (
            machine("near", "e2-standard-2"),
            "Placement policy is not applicable to machine type e2-standard-2",
        ),
        (machine("near", "n2-standard-2", onHostMaintenance="MIGRATE"), "live migration"),
        (machine("near", "n2-standard-2", region="us-east1"), "another region"),
    ):
        with pytest.raises(exceptions.BadRequest, match=words):
            google.insert(body)
    with pytest.raises(exceptions.BadRequest, match="already being used"):
        client.delete_unary(**where, resource_policy="near", retry=None)
    google.delete(member.name)
    client.delete_unary(**where, resource_policy="near", retry=None)
    await_that(lambda: not google.cloud.state()["placements"])
    with pytest.raises(exceptions.NotFound):
        client.get(**where, resource_policy="near")


def machine(policy: str, kind: str, region: str = "us-central1", **scheduling: str) -> dict[str, Any]:
    return {
        "name": "placed",
        "machineType": f"zones/us-central1-a/machineTypes/{kind}",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": UBUNTU}}],
        "networkInterfaces": [{"network": "global/networks/default"}],
        "scheduling": {"onHostMaintenance": "TERMINATE", **scheduling},
        "resourcePolicies": [f"projects/{PROJECT}/regions/{region}/resourcePolicies/{policy}"],
    }
