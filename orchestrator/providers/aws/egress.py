"""The price of downloading data from a bucket: US dollars per GiB, of the first tier that is not free.

From https://aws.amazon.com/s3/pricing (data transfer), as of 2025-06. Free allowances of an account and
prices of a contract are not known here.
"""

from __future__ import annotations

_OUT = {
    "af-south-1": (0.147, 0.154),
    "ap-northeast-1": (0.09, 0.114),
    "ap-northeast-2": (0.08, 0.126),
    "ap-south-1": (0.086, 0.1093),
    "ap-southeast-1": (0.09, 0.12),
    "ap-southeast-2": (0.098, 0.114),
    "me-south-1": (0.1105, 0.117),
    "sa-east-1": (0.138, 0.15),
}
_ELSEWHERE = (0.02, 0.09)
"""US dollars per GiB to another region, and to the internet."""


def usd_per_gib(bucket: str, region: str | None) -> float:
    """Return the price for data from a bucket in the region `bucket` to a machine in `region`, or to one
    outside this cloud.
    """
    between, outside = _OUT.get(bucket, _ELSEWHERE)
    return outside if region is None else between
