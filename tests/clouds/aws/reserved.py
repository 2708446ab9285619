"""Capacity reservations and capacity blocks of the account: told, and used up by launches.

A launch into one that is full or does not match: hashicorp/terraform-provider-aws#35745. Into a block without
its market type: terraform-aws-modules/terraform-aws-ec2-instance#404.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from moto.ec2.exceptions import EC2ClientError

from tests.clouds.aws.life import Life
from tests.clouds.aws.requests import Request, Response, error
from tests.clouds.aws.settings import SETTINGS

BLOCK = "capacity-block"
_LIVING = ("pending", "running", "stopping", "shutting-down")


def told(request: Request) -> Response:
    """DescribeCapacityReservations, by ids or all."""
    names = [value for key, value in request.parameters.items() if key.startswith("CapacityReservationId.")]
    unknown = [name for name in names if name not in SETTINGS.reservations]
    if unknown:
        message = f"The capacity reservation ID '{unknown[0]}' does not exist"
        return error(request, 400, "InvalidCapacityReservationId.NotFound", message)
    items = "".join(_item(name, SETTINGS.reservations[name]) for name in names or SETTINGS.reservations)
    start = '<DescribeCapacityReservationsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
    body = (
        f"{start}<requestId>r</requestId><capacityReservationSet>{items}</capacityReservationSet>"
        "</DescribeCapacityReservationsResponse>"
    )
    return Response(200, (("Content-Type", "text/xml;charset=UTF-8"),), body.encode())


def _item(name: str, facts: Mapping[str, Any]) -> str:
    shown = {
        "capacityReservationId": name,
        "instanceType": facts["type"],
        "availabilityZone": facts["zone"],
        "totalInstanceCount": facts.get("count", 1),
        "reservationType": facts.get("kind", "default"),
        "state": "active",
    }
    return f"<item>{''.join(f'<{key}>{escape(str(one))}</{key}>' for key, one in shown.items())}</item>"


def check(
    wanted: str | None, name: str, zone: str, market: str | None, region: str, lives: Sequence[Life]
) -> None:
    """Refuses a launch of type `name` that the reservation `wanted` does not hold."""
    if wanted is None:
        return
    facts = SETTINGS.reservations.get(wanted)
    if facts is None or facts["zone"][:-1] != region:
        raise EC2ClientError(
            "InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{wanted}' does not exist"
        )
    if (market == BLOCK) != (facts.get("kind") == BLOCK):
        raise EC2ClientError(
            "InvalidParameterValue",
            "The market type (purchasing) option is not valid. Choose a different market type and try again",
        )
    used = sum(
        1
        for life in lives
        if getattr(life.instance, "reserved_in", None) == wanted and life.instance.state in _LIVING
    )
    if (facts["type"], facts["zone"]) != (name, zone) or used >= facts.get("count", 1):
        raise EC2ClientError(
            "ReservationCapacityExceeded",
            "The requested reservation does not have sufficient compatible and available capacity for this "
            "request.",
        )
