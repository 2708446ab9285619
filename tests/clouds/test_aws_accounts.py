"""What AWS refuses because of the account, and not of a permission: a new account meets these first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api import setup as setup_
from orchestrator.errors import EXIT_AUTH, Fault, ProviderError
from orchestrator.leases import machine as making
from orchestrator.model import LABEL_LEASE, MachineSpec, Offer, Provider
from orchestrator.providers import open_provider
from tests.clouds import aws
from tests.clouds.test_quota_at_create import HERE, REGIONS, _reached, made

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a test"


@pytest.fixture(scope="module")
def served() -> Iterator[Any]:
    pytest.importorskip("boto3")
    with aws.running(groups=[], machines=False) as cloud:
        yield cloud


@pytest.fixture
def cloud(served: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for key, value in served.env.items():
        monkeypatch.setenv(key, value)
    for region in REGIONS["aws"]:
        setup_.setup("aws", source=HERE, region=region)
    monkeypatch.setattr(making, "wait_until_reachable", _reached)
    yield served
    served.clear_faults()


def spec(*, spot: bool) -> MachineSpec:
    offer = Offer("aws", "t3.small", "us-east-1", "us-east-1a", 2, 2 << 30, "x86_64", 0.02, spot=spot)
    return MachineSpec(
        id="orch-account",
        attempt=0,
        offer=offer,
        disk=12 << 30,
        deadline=datetime.now(UTC) + timedelta(hours=1),
        labels={LABEL_LEASE: "account"},
        ssh_public_key=KEY,
    )


def refused(provider: Provider, *, spot: bool = False) -> ProviderError:
    with pytest.raises(ProviderError) as error:
        provider.create(spec(spot=spot))
    assert (error.value.fault, error.value.exit_code) == (Fault.AUTH, EXIT_AUTH)
    assert "terraform" not in error.value.message, "no permission is lacking"
    return error.value


def test_a_region_that_is_being_validated_gives_way_to_the_next(cloud: Any, tmp_path: Path) -> None:
    first, second = REGIONS["aws"]
    cloud.faults({"action": "RunInstances", "code": "PendingVerification", "region": first, "times": -1})
    provider = open_provider("aws")
    ledger, reached = made(tmp_path, "aws", provider, lambda _: True)
    assert reached.machine.zone.startswith(second)
    assert {a.outcome for a in ledger.lease().attempts if a.zone.startswith(first)} == {"auth"}
    provider.delete(reached.machine)


def test_an_account_that_is_being_validated_is_told_to_wait(cloud: Any) -> None:
    cloud.faults({"action": "RunInstances", "code": "PendingVerification", "times": -1})
    error = refused(open_provider("aws"))
    assert "4 hours" in error.message
    assert "us-east-1" in error.message


@pytest.mark.parametrize(
    ("code", "way_out"), [("OptInRequired", "/billing/signup"), ("Blocked", "support.console.aws.amazon.com")]
)
def test_an_account_that_is_not_active_is_told_where(cloud: Any, code: str, way_out: str) -> None:
    cloud.faults({"action": "RunInstances", "code": code, "times": -1})
    assert way_out in refused(open_provider("aws")).message


def test_the_first_spot_machine_of_an_account_needs_a_role(cloud: Any) -> None:
    code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    cloud.faults({"action": "RunInstances", "code": code, "times": -1})
    error = refused(open_provider("aws"), spot=True)
    assert "spot: false" in error.message
    assert error.next_command == "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
