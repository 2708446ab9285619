"""Specific reservations: an instance that names one is made in it, or not at all.

https://cloud.google.com/compute/docs/instances/reservations-consume: name, zone and properties must match,
and Spot VMs cannot consume one. The words of the refusals are this emulator's own.
"""

from __future__ import annotations

from tests.clouds.gcp.errors import ApiError, Json, invalid
from tests.clouds.gcp.world import World

KEY = "compute.googleapis.com/reservation-name"


def held_by(body: Json) -> str | None:
    """The name of the reservation that an instance asks for."""
    affinity = body.get("reservationAffinity", {})
    if affinity.get("consumeReservationType") != "SPECIFIC_RESERVATION":
        return None
    if affinity.get("key") != KEY or len(affinity.get("values", ())) != 1:
        raise invalid("reservationAffinity", affinity, f"It has the key {KEY} and a name.")
    return str(affinity["values"][0]).rpartition("/")[2]


def check_insert(world: World, zone: str, body: Json) -> None:
    name = held_by(body)
    if name is None:
        return
    facts = world.settings.reservations.get(name)
    if facts is None or facts["zone"] != zone:
        raise invalid("reservationAffinity", name, f"The reservation does not exist in zone '{zone}'.")
    if body.get("scheduling", {}).get("provisioningModel") == "SPOT":
        raise invalid("scheduling.provisioningModel", "SPOT", "Spot VMs cannot consume reservations.")
    used = sum(held_by(one.shape) == name for one in world.instances.values() if one.zone == zone)
    if body["machineType"].rpartition("/")[2] != facts["type"] or used >= facts.get("count", 1):
        raise ApiError(
            400,
            "invalid",
            f"Specified reservation '{name}' does not have available resources for the request.",
        )
