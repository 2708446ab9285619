"""Reserved capacity: capacity reservations, and purchased capacity blocks.

Machines in a block need another market type, but the id does not show which of the two it is:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-launch.html
"""

from __future__ import annotations

from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.aws.clients import Clients, asking

_BLOCK = "capacity-block"


def is_block(clients: Clients, region: str, reservation: str | None) -> bool:
    """Return whether the reservation is a capacity block; False if the caller may not ask."""
    if reservation is None:
        return False
    try:
        with asking(clients, region):
            answer = clients.ec2(region).describe_capacity_reservations(CapacityReservationIds=[reservation])
    except ProviderError as error:
        if error.fault is Fault.AUTH:
            return False
        raise
    return any(found.get("ReservationType") == _BLOCK for found in answer["CapacityReservations"])
