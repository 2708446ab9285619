"""What it costs to take data out of a bucket: US dollars for a GiB, of the first tier that is not free.

From https://aws.amazon.com/s3/pricing (data transfer) and https://cloud.google.com/storage/pricing (data
transfer). What an account gets free, and what a contract changes, is not known here.
"""

from __future__ import annotations

PRICED_IN = "2025-06"
_CLOUDS = {"s3": "aws", "gs": "gcp"}

_AWS_OUT = {
    "af-south-1": (0.147, 0.154),
    "ap-northeast-1": (0.09, 0.114),
    "ap-northeast-2": (0.08, 0.126),
    "ap-south-1": (0.086, 0.1093),
    "ap-southeast-1": (0.09, 0.12),
    "ap-southeast-2": (0.098, 0.114),
    "me-south-1": (0.1105, 0.117),
    "sa-east-1": (0.138, 0.15),
}
_AWS_ELSEWHERE = (0.02, 0.09)
"""To another region, and to the internet."""

_CONTINENTS = {"us": "us", "northamerica": "us", "europe": "eu", "eu": "eu", "asia": "asia"}
_GOOGLE_WITHIN = {"us": 0.02, "eu": 0.02, "asia": 0.08}
_GOOGLE_BETWEEN = {
    frozenset(("us", "eu")): 0.05,
    frozenset(("us", "asia")): 0.08,
    frozenset(("eu", "asia")): 0.08,
}
_GOOGLE_FAR = 0.14
_GOOGLE_INTERNET = 0.12


def cloud_of(url: str) -> str | None:
    """The cloud in which a bucket lies; None for a url of none."""
    return _CLOUDS.get(url.partition("://")[0])


def usd_per_gib(url: str, where: str, cloud: str, region: str) -> float:
    """Of a bucket in `where`, a region or a continent, that a machine in that region of that cloud reads."""
    own = cloud_of(url)
    if own is None or (own, where) == (cloud, region):
        return 0.0
    if own == "aws":
        return _AWS_OUT.get(where, _AWS_ELSEWHERE)[own != cloud]
    return _google(where, region) if own == cloud else _GOOGLE_INTERNET


def _google(where: str, region: str) -> float:
    here, there = (_CONTINENTS.get(name.lower().partition("-")[0], "") for name in (where, region))
    if here == there:
        return _GOOGLE_WITHIN.get(here, _GOOGLE_FAR)
    return _GOOGLE_BETWEEN.get(frozenset((here, there)), _GOOGLE_FAR)
