"""A machine of reserved capacity: made in the reservation that its profile names, or nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.api.setup import setup
from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Machine, MachineSpec, Offer, Provider
from orchestrator.providers import open_provider

OFFERS = {
    "aws": Offer("aws", "m7i.large", "us-east-1", "us-east-1a", 2, 8 << 30, "x86_64", 0.1),
    "gcp": Offer("gcp", "n2-standard-2", "us-central1", "us-central1-a", 2, 8 << 30, "x86_64", 0.1),
}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a orch"
NAMES = {"aws": ("cr-0123456789abcdef0", "cr-0fedcba9876543210"), "gcp": ("night", "nowhere")}


@dataclass
class Account:
    """An account that holds one machine of its cloud's offer, reserved as `name`; `absent` names none."""

    provider: Provider
    offer: Offer
    name: str
    absent: str
    cloud: Any
    made: list[Machine]

    def create(self, attempt: int, reservation: str) -> Machine:
        now = datetime.now(UTC)
        spec = MachineSpec(
            id="orch-held",
            attempt=attempt,
            offer=self.offer,
            disk=20 << 30,
            deadline=now + timedelta(hours=1),
            labels={"orch-lease": f"held-{attempt}", "orch-owner": "ann"},
            ssh_public_key=KEY,
            user_data="#!/bin/sh\n",
            lasts=3600,
            reservation=reservation,
        )
        self.made.append(self.provider.create(spec))
        return self.made[-1]

    def hold(self, **facts: Any) -> None:
        held = {self.name: {"zone": self.offer.zone, "type": self.offer.instance_type, "count": 1, **facts}}
        if self.offer.cloud == "aws":
            self.cloud.set(reservations=held)
        else:
            self.cloud.settings(reservations=held)


@pytest.fixture(params=["aws", "gcp"])
def account(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    kind = request.param
    cloud = request.getfixturevalue({"aws": "cloud", "gcp": "shared_google"}[kind])
    for name, value in cloud.env.items():
        monkeypatch.setenv(name, value)
    if kind == "aws":
        monkeypatch.setenv("ORCH_AWS_REGIONS", "us-east-1")
        setup(kind, source="203.0.113.7/32")
    found = Account(open_provider(kind), OFFERS[kind], *NAMES[kind], cloud, [])
    yield found
    for machine in found.made:
        found.provider.delete(machine)
    if kind == "aws":
        cloud.set(reservations={})
        setup(kind, undo=True)
    else:
        cloud.settings(reservations={})


def refusal(account: Account, attempt: int, reservation: str) -> ProviderError:
    with pytest.raises(ProviderError) as refused:
        account.create(attempt, reservation)
    return refused.value


def test_its_capacity_is_used_up_by_one_machine(account: Account) -> None:
    account.hold()
    machine = account.create(0, account.name)
    assert account.create(0, account.name).id == machine.id, "the same attempt is the same machine"
    refused = refusal(account, 1, account.name)
    assert refused.fault in (Fault.CAPACITY, Fault.INVALID)
    assert account.name in str(refused) or "reservation" in str(refused)


def test_one_that_is_not_there_is_named(account: Account) -> None:
    account.hold()
    refused = refusal(account, 2, account.absent)
    assert refused.fault is Fault.INVALID
    assert account.absent in str(refused)


def test_one_of_another_type_does_not_serve(account: Account) -> None:
    account.hold(type="x1.32xlarge")
    assert refusal(account, 3, account.name).fault in (Fault.CAPACITY, Fault.INVALID)


@pytest.mark.parametrize("account", ["aws"], indirect=True)  # Google reserves blocks by the same affinity
def test_a_capacity_block_is_rented_by_its_own_market_type(account: Account) -> None:
    account.hold(kind="capacity-block")
    assert account.create(4, account.name).id
