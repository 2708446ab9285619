"""Why a cloud ended a machine that it had accepted: codes as they come in its answers, sorted into faults."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import Fault
from orchestrator.providers.aws import endings as aws
from orchestrator.providers.gcp import endings as gcp


def instance(code: str, message: str = "", state: str = "terminated", **more: Any) -> dict[str, Any]:
    """As DescribeInstances gives it."""
    return {
        "InstanceId": "i-0123456789abcdef0",
        "InstanceType": "g4dn.xlarge",
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "State": {"Name": state},
        "StateReason": {"Code": code, "Message": f"{code}: {message}"},
        **more,
    }


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("Server.InsufficientInstanceCapacity", Fault.CAPACITY),
        ("Server.SpotInstanceTermination", Fault.CAPACITY),
        ("Server.SpotInstanceShutdown", Fault.CAPACITY),
        ("Server.InternalError", Fault.TRANSIENT),
        ("Client.VolumeLimitExceeded", Fault.QUOTA),
        ("Client.InternalError", Fault.INVALID),
        ("Client.InvalidSnapshot.NotFound", Fault.INVALID),
        ("Client.InstanceInitiatedShutdown", None),
        ("Client.UserInitiatedShutdown", None),
        ("Server.SomethingNew", Fault.UNKNOWN),
        ("", None),
    ],
)
def test_reasons_of_aws(code: str, fault: Fault | None) -> None:
    ending = aws.ending_of(instance(code, "words"), "us-east-1")
    assert ending is not None
    assert (ending.fault, ending.code) == (fault, code)
    assert ending.preempted == ("Spot" in code)


@pytest.mark.parametrize("state", ["pending", "running", "stopping", "stopped"])
def test_what_has_not_ended_has_no_ending(state: str) -> None:
    assert aws.ending_of(instance("pending", state=state), "us-east-1") is None


def test_a_volume_quota_is_named_with_where_to_ask() -> None:
    ending = aws.ending_of(instance("Client.VolumeLimitExceeded", "Volume limit exceeded"), "eu-west-1")
    assert ending is not None
    assert "L-7A658B76" in ending.message
    assert "eu-west-1" in ending.message
    assert "--service-code ebs" in str(ending.next_command)


def test_a_disk_that_cannot_be_encrypted_points_to_the_key() -> None:
    ending = aws.ending_of(instance("Client.InternalError", "Client error on launch"), "us-east-1")
    assert ending is not None
    assert "KMS" in ending.message


@pytest.mark.parametrize(
    ("reason", "at"),
    [
        ("User initiated (2026-01-02 03:04:05 GMT)", 1767323045.0),
        ("User initiated (2026-01-02 03:04:05 UTC)", 1767323045.0),
        ("Server.SpotInstanceTermination: Spot instance termination", None),
        ("User initiated (2026-13-02 03:04:05 GMT)", None),
        ("User initiated (yesterday)", None),
        ("(2026-01-02 03:04:05 GMT) and more", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
@pytest.mark.parametrize("code", ["Client.UserInitiatedShutdown", "Client.VolumeLimitExceeded", "Server.New"])
def test_when_aws_ended_it(code: str, reason: Any, at: float | None) -> None:
    ending = aws.ending_of(instance(code, StateTransitionReason=reason), "us-east-1")
    assert ending is not None and ending.at == at


@pytest.mark.parametrize(
    ("facts", "at"),
    [
        ({"lastStopTimestamp": "2026-11-20T02:40:00.123-00:00"}, 1795142400.123),
        ({"lastStopTimestamp": "2026-11-19T18:40:00.123-08:00"}, 1795142400.123),
        (
            {
                "lastStopTimestamp": "2026-11-20T02:40:00.123-00:00",
                "lastStartTimestamp": "2026-11-20T02:50:00.000-00:00",
            },
            None,
        ),
        ({"lastStopTimestamp": "soon"}, None),
        ({}, None),
    ],
)
def test_when_google_stopped_it(facts: dict[str, str], at: float | None) -> None:
    assert gcp.stopped_at(facts) == at


def operation(kind: str) -> dict[str, Any]:
    return {"operationType": kind, "insertTime": "2026-11-20T02:40:00.123-00:00", "status": "DONE"}


@pytest.mark.parametrize(
    ("kinds", "fault", "preempted"),
    [
        (("insert", "compute.instances.preempted"), Fault.CAPACITY, True),
        (("insert", "delete", "compute.instances.preempted"), Fault.CAPACITY, True),
        (("insert", "compute.instances.hostError"), Fault.TRANSIENT, False),
        (("insert", "compute.instances.guestTerminate"), None, False),
        (("insert", "delete"), None, False),
        (("insert",), None, False),
        ((), None, False),
    ],
)
def test_operations_of_google(kinds: tuple[str, ...], fault: Fault | None, preempted: bool) -> None:
    ending = gcp.ending_of(map(operation, kinds), "orch-a-0", "us-central1-a")
    assert (ending.fault, ending.preempted) == (fault, preempted)
    assert ending.at == (1795142400.123 if set(kinds) - {"insert"} else None)
    assert "orch-a-0" in ending.message
