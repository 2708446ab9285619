"""Disk, identity, reservation and labels of a profile in the one call that makes its machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator

from orchestrator.errors import ProviderError
from orchestrator.model import Volume
from orchestrator.providers.aws import tags
from orchestrator.providers.aws.request import run_instances
from tests.unit.providers import test_aws_request as aws
from tests.unit.providers import test_gcp_request as gcp


def test_aws_is_asked_for_the_fields_of_the_profile() -> None:
    """Disk, identity, reservation and labels; the call is still one that EC2's model takes."""
    wanted = aws.spec(
        volume=Volume("gp3", 250, 4000),
        identity="trainer",
        reservation="cr-0123456789abcdef0",
        own_labels={"Cost Center": "Lab 7"},
    )
    request = run_instances(wanted, aws.IMAGE, aws.NETWORK, user="ubuntu", host_key=None, is_block=True)
    shape = Session().get_service_model("ec2").operation_model("RunInstances").input_shape
    assert not ParamValidator().validate({**request, "ClientToken": "x"}, shape).has_errors()
    ebs = request["BlockDeviceMappings"][0]["Ebs"]
    assert (ebs["VolumeType"], ebs["Iops"], ebs["Throughput"]) == ("gp3", 4000, 250)
    assert request["IamInstanceProfile"] == {"Name": "trainer"}
    target = request["CapacityReservationSpecification"]["CapacityReservationTarget"]
    assert target == {"CapacityReservationId": "cr-0123456789abcdef0"}
    assert request["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    for tagged in request["TagSpecifications"]:
        assert {"Key": "Cost Center", "Value": "Lab 7"} in tagged["Tags"]


def test_a_label_of_the_users_own_replaces_none_of_ours() -> None:
    with pytest.raises(ProviderError, match="cannot be a tag"):
        aws.asked(aws.spec(own_labels={tags.MACHINE: "another"}))


def test_on_aws_a_machine_has_neither_by_default() -> None:
    request = aws.asked(aws.spec())
    assert not {"IamInstanceProfile", "CapacityReservationSpecification", "InstanceMarketOptions"} & set(
        request
    )


def test_google_is_asked_for_the_fields_of_the_profile() -> None:
    """Disk, identity, reservation and labels, in a body that Google's own description takes."""
    email = "trainer@p.iam.gserviceaccount.com"
    offer = replace(gcp.PLAIN, instance_type="n4-standard-2")
    body = gcp.made(
        offer,
        volume=Volume("hyperdisk-balanced", 500, 6000),
        identity=email,
        reservation="mine",
        own_labels={"team": "vision"},
    )
    disk = body["disks"][0]["initializeParams"]
    assert disk["diskType"].endswith("/hyperdisk-balanced")
    assert (disk["provisionedIops"], disk["provisionedThroughput"]) == ("6000", "500")
    assert body["serviceAccounts"][0]["email"] == email
    affinity = body["reservationAffinity"]
    assert (affinity["consumeReservationType"], affinity["values"]) == ("SPECIFIC_RESERVATION", ["mine"])
    assert body["labels"]["team"] == disk["labels"]["team"] == "vision"
    assert body["labels"]["orch-owner"] == "me"


def test_at_google_a_machine_has_neither_by_default() -> None:
    body = gcp.made()
    assert body["serviceAccounts"] == []
    assert "reservationAffinity" not in body
