"""What instances cost and how many one may have: prices, spot prices, quotas."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.clouds.aws.settings import ACCOUNT, SETTINGS

PRICES = {
    "t3.micro": 0.0104,
    "t3.small": 0.0208,
    "t3.medium": 0.0416,
    "t3.large": 0.0832,
    "t4g.small": 0.0168,
    "m5.large": 0.096,
    "m5.xlarge": 0.192,
    "m7i.large": 0.1008,
    "m7g.large": 0.0816,
    "c5.large": 0.085,
    "c7i.xlarge": 0.1785,
    "c7g.large": 0.0725,
    "g4dn.xlarge": 0.526,
    "g4dn.2xlarge": 0.752,
    "g4dn.12xlarge": 3.912,
    "g5.xlarge": 1.006,
    "g5.2xlarge": 1.212,
    "g5g.xlarge": 0.42,
    "g6.xlarge": 0.8048,
    "g6e.xlarge": 1.861,
    "p3.2xlarge": 3.06,
    "p4d.24xlarge": 21.957642,
    "p5.48xlarge": 55.04,
    "p2.xlarge": 0.9,
    "trn1.2xlarge": 1.34375,
    "inf2.xlarge": 0.7582,
}
"""On demand, Linux, us-east-1, as published in 2026; other types by their size."""

_FACTORS = {"us-east-1": 1.0, "us-east-2": 1.0, "us-west-2": 1.0, "us-west-1": 1.17, "eu-west-1": 1.11}
_LOCATIONS = {
    "us-east-1": "US East (N. Virginia)",
    "us-east-2": "US East (Ohio)",
    "us-west-1": "US West (N. California)",
    "us-west-2": "US West (Oregon)",
    "eu-west-1": "EU (Ireland)",
    "eu-central-1": "EU (Frankfurt)",
}
_BUCKETS = (
    # families, on-demand quota and its default, spot quota and its default, name
    (r"p\d", "L-417A185B", 192, "L-7212CCBC", 192, "P"),
    (r"(g\d|gr\d|vt)", "L-DB2E81BA", 64, "L-3819A6DF", 64, "G and VT"),
    (r"inf", "L-1945791B", 64, "L-B5D1601B", 64, "Inf"),
    (r"trn", "L-2C3B7624", 64, "L-6B0D517C", 64, "Trn"),
    (r"dl\d", "L-6E869C2A", 96, "L-85EED4F7", 96, "DL"),
    (r"x\d", "L-7295265B", 128, "L-E3A00192", 128, "X"),
    (r"f\d", "L-74FC7D96", 96, "L-88CF9481", 96, "F"),
    (r"u-|u7", "L-43DA4232", 0, "", 0, "High Memory"),
    (r"hpc", "L-F7808C92", 192, "", 0, "HPC"),
    (r"", "L-1216C47A", 256, "L-34B43A08", 256, "Standard (A, C, D, H, I, M, R, T, Z)"),
)


def on_demand(type_info: Mapping[str, Any], region: str) -> float:
    """US dollars an hour."""
    name = type_info["InstanceType"]
    known = PRICES.get(name)
    if known is None:
        cpus, memory = type_info["VCpuInfo"]["DefaultVCpus"], type_info["MemoryInfo"]["SizeInMiB"] / 1024
        gpus = type_info.get("GpuInfo", {}).get("TotalGpuMemoryInMiB", 0) / 1024
        known = round(0.034 * cpus + 0.0036 * memory + 0.021 * gpus, 4)
    return round(known * _FACTORS.get(region, 1.2), 6)


def spot(type_info: Mapping[str, Any], zone: str) -> float:
    """US dollars an hour; differs by zone, the same for ever."""
    chance = hashlib.sha256(f"{type_info['InstanceType']}@{zone}".encode()).digest()[0] / 255
    return round(on_demand(type_info, zone.rstrip("abcdef")) * (0.25 + 0.25 * chance), 6)


# ---------------------------------------------------------------- price list


def products(types: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """AmazonEC2's products that have all of the wanted attributes; several a type, and only one is meant."""
    regions = [wanted["regionCode"]] if "regionCode" in wanted else [*_FACTORS, "eu-central-1"]
    names = [wanted["instanceType"]] if "instanceType" in wanted else sorted(types)
    for region in regions:
        for name in names:
            if name in types:
                for product in _variants(types[name], region):
                    attributes = product["product"]["attributes"]
                    if all(attributes.get(key) == value for key, value in wanted.items()):
                        yield product


def _variants(info: Mapping[str, Any], region: str) -> Iterator[dict[str, Any]]:
    price = on_demand(info, region)
    yield _product(info, region, price, "Linux", "Shared", "Used", "BoxUsage")
    yield _product(info, region, 0.0, "Linux", "Shared", "AllocatedCapacityReservation", "Reservation")
    yield _product(info, region, price, "Linux", "Shared", "UnusedCapacityReservation", "UnusedBox")
    yield _product(info, region, round(price * 1.06, 6), "Linux", "Dedicated", "Used", "DedicatedUsage")
    yield _product(info, region, round(price + 0.184, 6), "Windows", "Shared", "Used", "BoxUsage")


def _product(
    info: Mapping[str, Any], region: str, price: float, system: str, tenancy: str, status: str, usage: str
) -> dict[str, Any]:
    name = info["InstanceType"]
    sku = hashlib.sha256(f"{name}{region}{system}{tenancy}{status}".encode()).hexdigest()[:16].upper()
    term, rate = f"{sku}.JRTCKXETXF", f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    return {
        "product": {
            "productFamily": "Compute Instance" if "metal" not in name else "Compute Instance (bare metal)",
            "sku": sku,
            "attributes": {
                "servicecode": "AmazonEC2",
                "servicename": "Amazon Elastic Compute Cloud",
                "instanceType": name,
                "vcpu": str(info["VCpuInfo"]["DefaultVCpus"]),
                "memory": f"{info['MemoryInfo']['SizeInMiB'] / 1024:g} GiB",
                "regionCode": region,
                "location": _LOCATIONS.get(region, region),
                "locationType": "AWS Region",
                "operatingSystem": system,
                "tenancy": tenancy,
                "capacitystatus": status,
                "preInstalledSw": "NA",
                "licenseModel": "No License required",
                "marketoption": "OnDemand",
                "usagetype": f"{usage}:{name}",
                "operation": "RunInstances" if system == "Linux" else "RunInstances:0002",
            },
        },
        "serviceCode": "AmazonEC2",
        "version": "20261101000000",
        "publicationDate": "2026-11-01T00:00:00Z",
        "terms": {
            "OnDemand": {
                term: {
                    "sku": sku,
                    "offerTermCode": "JRTCKXETXF",
                    "effectiveDate": "2026-11-01T00:00:00Z",
                    "termAttributes": {},
                    "priceDimensions": {
                        rate: {
                            "rateCode": rate,
                            "unit": "Hrs",
                            "beginRange": "0",
                            "endRange": "Inf",
                            "description": f"${price:.10f} per {tenancy} {system} {name} Instance Hour",
                            "appliesTo": [],
                            "pricePerUnit": {"USD": f"{price:.10f}"},
                        }
                    },
                }
            }
        },
    }


# ---------------------------------------------------------------- quotas


def bucket(instance_type: str, spot_request: bool) -> str:
    """The code of the quota that an instance of this type counts against."""
    for pattern, demand, _, spot_code, _, _ in _BUCKETS:
        if re.match(pattern, instance_type):
            return (spot_code or demand) if spot_request else demand
    raise AssertionError(instance_type)


def limit(code: str, region: str) -> float:
    """vCPUs that may run at once there."""
    everywhere = SETTINGS.quotas.get(code, _defaults()[code])
    return SETTINGS.quotas.get(f"{region}/{code}", everywhere)


def quota(code: str, region: str, *, default: bool = False) -> dict[str, Any] | None:
    """As Service Quotas tells it; None for a code that is not one."""
    name = _names().get(code)
    if name is None:
        return None
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{region}:{ACCOUNT}:ec2/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": float(_defaults()[code] if default else limit(code, region)),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
        "UsageMetric": {
            "MetricNamespace": "AWS/Usage",
            "MetricName": "ResourceCount",
            "MetricDimensions": {
                "Class": name.split()[1],
                "Resource": "vCPU",
                "Service": "EC2",
                "Type": "Resource",
            },
            "MetricStatisticRecommendation": "Maximum",
        },
    }


def quota_codes() -> Sequence[str]:
    return sorted(_names())


def _names() -> dict[str, str]:
    names = {}
    for _, demand, _, spot_code, _, family in _BUCKETS:
        names[demand] = f"Running On-Demand {family} instances"
        if spot_code:
            names[spot_code] = f"All {family} Spot Instance Requests"
    return names


def _defaults() -> dict[str, float]:
    found: dict[str, float] = {}
    for _, demand, demand_limit, spot_code, spot_limit, _ in _BUCKETS:
        found[demand] = demand_limit
        if spot_code:
            found[spot_code] = spot_limit
    return found
