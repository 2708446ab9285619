"""Whether a reservation of EC2 is a capacity block, by the answers of boto3's own client."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.aws.clients import Clients
from orchestrator.providers.aws.reservations import is_block
from orchestrator.providers.aws.settings import Settings

RESERVATION = "cr-0123456789abcdef0"


@pytest.fixture
def ec2() -> Any:
    return boto3.client("ec2", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")


@pytest.fixture
def clients(ec2: Any, monkeypatch: pytest.MonkeyPatch) -> Clients:
    made = Clients(Settings(), lambda: ("us-east-1",))
    monkeypatch.setattr(made, "client", lambda *_: ec2)
    monkeypatch.setattr(made, "identity", lambda: "me")
    return made


@pytest.mark.parametrize(("kind", "block"), [("capacity-block", True), ("default", False)])
def test_its_kind_tells(ec2: Any, clients: Clients, kind: str, block: bool) -> None:
    answer = {"CapacityReservations": [{"CapacityReservationId": RESERVATION, "ReservationType": kind}]}
    with Stubber(ec2) as stub:
        stub.add_response("describe_capacity_reservations", answer, {"CapacityReservationIds": [RESERVATION]})
        assert is_block(clients, "us-east-1", RESERVATION) is block


def test_without_the_permission_it_counts_as_an_ordinary_one(ec2: Any, clients: Clients) -> None:
    with Stubber(ec2) as stub:
        stub.add_client_error("describe_capacity_reservations", "UnauthorizedOperation", http_status_code=403)
        assert not is_block(clients, "us-east-1", RESERVATION)


def test_one_that_is_not_there_is_refused_by_name(ec2: Any, clients: Clients) -> None:
    with Stubber(ec2) as stub:
        stub.add_client_error(
            "describe_capacity_reservations", "InvalidCapacityReservationId.NotFound", f"no {RESERVATION}"
        )
        with pytest.raises(ProviderError, match=RESERVATION) as refused:
            is_block(clients, "us-east-1", RESERVATION)
    assert refused.value.fault is Fault.INVALID


def test_nothing_is_asked_without_one(clients: Clients) -> None:
    assert not is_block(clients, "us-east-1", None)
