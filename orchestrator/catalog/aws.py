"""Build a catalog from EC2 and its price list. The parsers are pure; only `ask` uses a network."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from orchestrator.catalog.names import accelerator_name
from orchestrator.catalog.rows import Catalog, Sale, Told
from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Offer

_MIB = 1 << 20
_ARCHITECTURES = ("x86_64", "arm64")
_PRICED_FROM = "us-east-1"
"""The price list for all regions is available in a few regions only, such as this one."""
_AUTH = {
    *("AuthFailure", "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "ExpiredToken"),
    *("InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "OptInRequired"),
    *("ExpiredTokenException", "RequestExpired"),
}
SOURCES = ("EC2: instance types, their offerings and spot price history; the Price List",)
NOTES = ("Linux. Spot is that of the moment, by zone.", "Network is the baseline, not the burst.")


# ---------------------------------------------------------------- asking


def home() -> str:
    """Return the region that boto3 is configured for, or us-east-1."""
    import boto3

    return boto3.Session().region_name or _PRICED_FROM


def renew(known: Catalog, region: str | None, now: datetime) -> Told:  # noqa: ARG001 (AWS states everything)
    """Return what `region` (default: that of boto3) sells now. Raises ProviderError."""
    kinds, sales = ask(region or home(), now)
    return Told(kinds, sales, SOURCES, NOTES)


def ask(region: str, now: datetime) -> tuple[list[Offer], dict[str, list[Sale]]]:
    """Return kinds of machines, and sales by type, of one region. Raises ProviderError.

    Credentials and endpoints are found as boto3 finds them (AWS_ENDPOINT_URL and its forms for one service).
    """
    with _translated():
        ec2 = _client("ec2", region)
        described = _pages(ec2, "describe_instance_types", "InstanceTypes")
        offered = _pages(
            ec2, "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone"
        )
        spots = _pages(
            ec2,
            "describe_spot_price_history",
            "SpotPriceHistory",
            StartTime=now,
            ProductDescriptions=["Linux/UNIX"],
        )
        kinds = [kind for each in described if (kind := parse_type(each))]
        filters = [
            {"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in _wanted(region).items()
        ]
        products = _pages(
            _client("pricing", _PRICED_FROM),
            "get_products",
            "PriceList",
            ServiceCode="AmazonEC2",
            Filters=filters,
        )
        prices = parse_products((json.loads(each) for each in products), region)
        zones = parse_offerings(offered)
        spot = parse_spots(spots)
    sales = {
        kind.instance_type: found
        for kind in kinds
        if (found := sales_of(kind.instance_type, region, prices, zones, spot))
    }
    return [kind for kind in kinds if kind.instance_type in sales], sales


def _wanted(region: str) -> dict[str, str]:
    """Return the product by which a plain Linux machine of a type is billed."""
    return {
        "regionCode": region,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "licenseModel": "No License required",
    }


def _client(service: str, region: str) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise ProviderError(
            Fault.INVALID,
            "boto3 is not installed.",
            code="NoLibrary",
            next_command="pip install 'orch-train[aws]'",
        ) from error
    config = Config(retries={"mode": "standard", "max_attempts": 5}, connect_timeout=10, read_timeout=60)
    return boto3.client(service, region_name=region, config=config)


def _pages(client: Any, call: str, key: str, **arguments: Any) -> list[Any]:
    pages = client.get_paginator(call).paginate(**arguments)
    return [each for page in pages for each in page.get(key, ())]


@contextmanager
def _translated() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        fault = Fault.AUTH if code in _AUTH else Fault.TRANSIENT if status >= 500 else Fault.UNKNOWN
        raise _refused(fault, code, error) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise _refused(Fault.AUTH, type(error).__name__, error) from error
    except BotoCoreError as error:
        raise _refused(Fault.TRANSIENT, type(error).__name__, error) from error


def _refused(fault: Fault, code: str, error: Exception) -> ProviderError:
    return ProviderError(
        fault,
        f"AWS did not say what it sells: {error}",
        code=code,
        exists="The catalog is as it was.",
        next_command="orch doctor aws" if fault is Fault.AUTH else "orch catalog refresh aws",
    )


# ---------------------------------------------------------------- reading the answers


def parse_type(answer: Mapping[str, Any]) -> Offer | None:
    """Parse one entry of DescribeInstanceTypes; None if no Linux machine can have the type."""
    arch = next((a for a in _ARCHITECTURES if a in answer["ProcessorInfo"]["SupportedArchitectures"]), None)
    if arch is None or "on-demand" not in answer.get("SupportedUsageClasses", ("on-demand",)):
        return None
    name, count, memory, vendor = _accelerator(answer)
    return Offer(
        "aws",
        answer["InstanceType"],
        region="",
        zone="",
        cpus=answer["VCpuInfo"]["DefaultVCpus"],
        memory=answer["MemoryInfo"]["SizeInMiB"] * _MIB,
        arch=arch,
        price=0.0,
        accelerator=name or None,
        accelerator_count=count,
        gpu_memory=memory,
        vendor=vendor,
        local_ssd=_local_ssd(answer) * 10**9,
        network=_network(answer.get("NetworkInfo", {})),
    )


def _accelerator(answer: Mapping[str, Any]) -> tuple[str, int, int, str]:
    """Return name, number, bytes of memory of each, and manufacturer. A fraction of a GPU counts 0, as in
    EC2.
    """
    for gpu in answer.get("GpuInfo", {}).get("Gpus", ()):
        memory = gpu.get("MemoryInfo", {}).get("SizeInMiB", 0) * _MIB
        part = gpu.get("GpuPartitionSize", 1.0) < 1
        vendor = gpu.get("Manufacturer", "").lower()
        return accelerator_name(gpu["Name"], memory), 0 if part else gpu.get("Count", 0), memory, vendor
    for device in answer.get("NeuronInfo", {}).get("NeuronDevices", ()):
        memory = device.get("MemoryInfo", {}).get("SizeInMiB", 0) * _MIB
        return accelerator_name(device["Name"], memory), device["Count"], memory, "aws"
    for other in answer.get("InferenceAcceleratorInfo", {}).get("Accelerators", ()):
        return accelerator_name(other["Name"], 0), other["Count"], 0, other.get("Manufacturer", "").lower()
    return "", 0, 0, ""


def _local_ssd(answer: Mapping[str, Any]) -> int:
    disks = answer.get("InstanceStorageInfo", {}).get("Disks", ())
    return sum(disk["SizeInGB"] * disk["Count"] for disk in disks if disk["Type"] == "ssd")


def _network(info: Mapping[str, Any]) -> float:
    cards = info.get("NetworkCards", ())
    return round(float(sum(card.get("BaselineBandwidthInGbps", 0.0) for card in cards)), 3)


def parse_offerings(answers: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Parse DescribeInstanceTypeOfferings by availability zone: the zones of each type."""
    zones: dict[str, set[str]] = defaultdict(set)
    for each in answers:
        zones[each["InstanceType"]].add(each["Location"])
    return zones


def parse_products(products: Iterable[Mapping[str, Any]], region: str) -> dict[str, float]:
    """Parse the price list of a region: on-demand US dollars an hour, by type."""
    prices: dict[str, float] = {}
    wanted = _wanted(region)
    for each in products:
        attributes = each["product"]["attributes"]
        if any(attributes.get(key, value) != value for key, value in wanted.items()):
            continue
        for price in _hourly(each):
            prices[attributes["instanceType"]] = price
    return prices


def _hourly(product: Mapping[str, Any]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            price = float(dimension["pricePerUnit"].get("USD", "nan"))
            if dimension["unit"] == "Hrs" and price > 0:
                yield price


def parse_spots(answers: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Parse DescribeSpotPriceHistory: the latest price by type and zone."""
    latest: dict[tuple[str, str], tuple[datetime, float]] = {}
    for each in answers:
        key = (each["InstanceType"], each["AvailabilityZone"])
        at = each.get("Timestamp", datetime.min.replace(tzinfo=UTC))
        if key not in latest or at > latest[key][0]:
            latest[key] = (at, float(each["SpotPrice"]))
    return {key: price for key, (_, price) in latest.items()}


def sales_of(
    name: str,
    region: str,
    prices: Mapping[str, float],
    zones: Mapping[str, Iterable[str]],
    spot: Mapping[tuple[str, str], float],
) -> list[Sale]:
    """Return one sale for the zones that share a spot price; none if no zone has the type."""
    by_price: dict[float | None, list[str]] = defaultdict(list)
    for zone in sorted(zones.get(name, ())):
        by_price[spot.get((name, zone))].append(zone)
    price = prices.get(name, math.nan)
    return [
        Sale(region, tuple(shared), price, math.nan if asked is None else asked)
        for asked, shared in by_price.items()
    ]
