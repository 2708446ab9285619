"""DryRun for the operations of EC2 whose DryRun moto overlooks: who got this far may."""

from __future__ import annotations

from tests.clouds.aws.requests import Request, Response, error

OVERLOOKED = frozenset(
    {
        "DescribeInstanceTypeOfferings",
        "DescribeInstanceTypes",
        "DescribeSecurityGroups",
        "DescribeSpotPriceHistory",
    }
)


def answer(request: Request) -> Response | None:
    """DryRunOperation, with which AWS says that it would have done it; None for what moto answers."""
    asked = request.service == "ec2" and request.parameters.get("DryRun", "").lower() == "true"
    if not asked or request.action not in OVERLOOKED:
        return None
    text = "Request would have succeeded, but DryRun flag is set."
    return error(request, 412, "DryRunOperation", text)
