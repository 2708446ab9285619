"""One instance, by its id."""

from __future__ import annotations

import re
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Machine
from orchestrator.providers.aws.clients import Clients, asking
from orchestrator.providers.aws.request import region_of_zone

_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}\Z")


def identity_of(machine: Machine) -> str:
    """Return the id. Raise ProviderError(INVALID) for one that is not an instance's."""
    if not _INSTANCE.match(machine.id):
        raise ProviderError(
            Fault.INVALID,
            f"{machine.id[:80]!r} is not an instance of AWS.",
            code="InvalidInstanceID",
        )
    return machine.id


def region_of(machine: Machine) -> str:
    return str(machine.detail.get("region") or region_of_zone(machine.zone))


def described(clients: Clients, region: str, identity: str) -> dict[str, Any] | None:
    """Return the instance as EC2 describes it; None if EC2 does not know it."""
    try:
        with asking(clients, region):
            answer = clients.ec2(region).describe_instances(InstanceIds=[identity])
    except ProviderError as error:
        if error.code == "InvalidInstanceID.NotFound":
            return None
        raise
    return next((i for found in answer["Reservations"] for i in found["Instances"]), None)
