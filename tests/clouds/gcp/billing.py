"""Cloud Billing's list of Compute Engine's SKUs: a small part of it, in its real form.

GET /v1/services/6F81-5844-456A/skus with currencyCode, pageSize, pageToken. Prices in US dollars an hour,
of the order of the real ones: for tests of the form, not of the figures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.listing import start_of, token_of

SERVICE = "services/6F81-5844-456A"
_MOST = 5000

_PARTS: tuple[tuple[str, str, str, float], ...] = (
    # description, resource group, usage type, price
    ("N1 Predefined Instance Core running in Americas", "N1Standard", "OnDemand", 0.031611),
    ("N1 Predefined Instance Ram running in Americas", "N1Standard", "OnDemand", 0.004237),
    (
        "Spot Preemptible N1 Predefined Instance Core running in Americas",
        "N1Standard",
        "Preemptible",
        0.00698,
    ),
    ("Spot Preemptible N1 Predefined Instance Ram running in Americas", "N1Standard", "Preemptible", 0.00094),
    ("E2 Instance Core running in Americas", "CPU", "OnDemand", 0.02181159),
    ("E2 Instance Ram running in Americas", "RAM", "OnDemand", 0.00292353),
    ("G2 Instance Core running in Americas", "CPU", "OnDemand", 0.02498822),
    ("G2 Instance Ram running in Americas", "RAM", "OnDemand", 0.00292733),
    ("Nvidia L4 GPU running in Americas", "GPU", "OnDemand", 0.56004),
    ("Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas", "GPU", "Preemptible", 0.2214),
    ("Nvidia Tesla T4 GPU running in Americas", "GPU", "OnDemand", 0.35),
    ("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas", "GPU", "Preemptible", 0.11),
)


def skus(query: Mapping[str, str]) -> Json:
    """One page of the list."""
    known = {"currencyCode", "pageSize", "pageToken", "key", "alt", "$alt", "fields", "prettyPrint"}
    if not set(query) <= known:
        name = min(set(query) - known)
        raise ApiError(400, "badRequest", f'Invalid JSON payload received. Unknown name "{name}".')
    size, start = int(query.get("pageSize", _MOST)) or _MOST, start_of(query.get("pageToken", ""))
    if not 0 < size <= _MOST:
        raise ApiError(400, "badRequest", f"The page size must be at most {_MOST}.")
    everything = [_sku(*part) for part in _PARTS]
    token = token_of(start + size) if start + size < len(everything) else ""
    return {"skus": everything[start : start + size], "nextPageToken": token}


def _sku(description: str, group: str, usage: str, price: float) -> Json:
    identity = "-".join(
        hashlib.sha256(description.encode()).hexdigest()[n : n + 4].upper() for n in (0, 4, 8)
    )
    unit = "giga byte hour" if " Ram " in description else "hour"
    rate = {"currencyCode": "USD", "units": str(int(price)), "nanos": round(price % 1 * 1e9)}
    expression = {
        "usageUnit": "GiBy.h" if unit.startswith("giga") else "h",
        "usageUnitDescription": unit,
        "displayQuantity": 1,
        "tieredRates": [{"startUsageAmount": 0, "unitPrice": rate}],
    }
    return {
        "name": f"{SERVICE}/skus/{identity}",
        "skuId": identity,
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": ["us-central1", "us-east1", "us-west1"],
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": expression,
                "currencyConversionRate": 1,
                "effectiveTime": "2026-07-30T00:00:00.000Z",
            }
        ],
        "serviceProviderName": "Google",
    }
