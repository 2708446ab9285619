"""The price of downloading data from a bucket: US dollars per GiB, of the first tier that is not free.

From https://cloud.google.com/storage/pricing (data transfer), as of 2025-06. Free allowances of an account
and prices of a contract are not known here.
"""

from __future__ import annotations

_CONTINENTS = {"us": "us", "northamerica": "us", "europe": "eu", "eu": "eu", "asia": "asia"}
_WITHIN = {"us": 0.02, "eu": 0.02, "asia": 0.08}
_BETWEEN = {
    frozenset(("us", "eu")): 0.05,
    frozenset(("us", "asia")): 0.08,
    frozenset(("eu", "asia")): 0.08,
}
_FAR = 0.14
_INTERNET = 0.12


def usd_per_gib(bucket: str, region: str | None) -> float:
    """Return the price for data from a bucket in a region or multi-region to a machine in `region`, or to
    one outside this cloud.
    """
    if region is None:
        return _INTERNET
    here, there = (_CONTINENTS.get(name.lower().partition("-")[0], "") for name in (bucket, region))
    if here == there:
        return _WITHIN.get(here, _FAR)
    return _BETWEEN.get(frozenset((here, there)), _FAR)
