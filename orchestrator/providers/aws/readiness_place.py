"""Check whether a region is ready for a machine: network, image, the complete request, quota. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import LABEL_LEASE, Check, MachineSpec, Offer, Topic
from orchestrator.model.checks import missing, ok, unknown, warning
from orchestrator.providers.aws import images, network, request
from orchestrator.providers.aws.clients import Clients, asking
from orchestrator.providers.aws.faults import refused_action
from orchestrator.providers.aws.quotas import Quota
from orchestrator.providers.aws.quotas import quota as quota_of
from orchestrator.providers.aws.settings import Settings

_SSH = 22
_SUBNET = "subnet"
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a doctor"
_PLAN = "orch plan PROFILE    # PROFILE: its file; shows which types fit"
_SOME_IMAGE = request.Image("ami-0123456789abcdef0", "some image", "nobody", "/dev/sda1", 0, "x86_64")
_SOME_NETWORK = request.Network("subnet-0123456789abcdef0", ("sg-0123456789abcdef0",), public=True)
"""Ids in the form of real ones, so that a refusal still shows whether the permission is granted."""


@dataclass(frozen=True)
class Site:
    """Where a machine would be created. `offers`: those of one type in one region, by zone; () without an
    offer.
    """

    clients: Clients
    settings: Settings
    region: str
    offers: tuple[Offer, ...]
    disk: int
    image: str | None = None
    direct: bool = True
    """Whether machines are reached at their own address, and not through a tunnel."""


@dataclass(frozen=True)
class Found:
    """`request`: the parameters of RunInstances without a token; {} without an offer. `whole`: image and
    network are in it.
    """

    checks: tuple[Check, ...]
    offer: Offer | None
    request: Mapping[str, Any]
    whole: bool


def look(site: Site) -> Found:
    """Check network and image, and the complete request if both exist."""
    if not site.offers:
        return Found((_nothing_offered(site),), None, {}, whole=False)
    plugged, networks = _networks(site)
    offer = next((offer for offer in site.offers if offer.zone in plugged), site.offers[0])
    image, images_ = _image(site, offer)
    checks = (*networks, *_ssh(site, next(iter(plugged.values()), None)), *images_)
    try:
        wanted = request.run_instances(
            _spec(site, offer),
            image or _SOME_IMAGE,
            plugged.get(offer.zone) or _SOME_NETWORK,
            user=(image and image.user) or "nobody",
            host_key=None,
        )
    except ProviderError as error:
        unfit = missing(Topic.IMAGE, offer.instance_type, error.message, _PLAN)
        return Found((*checks, unfit), offer, {}, whole=False)
    return Found(checks, offer, wanted, whole=image is not None and offer.zone in plugged)


def before_up(site: Site) -> Iterator[Check]:
    """Check network and ssh. A zone without a subnet is not reported, because `up` continues with the next
    offer.
    """
    plugged, found = _networks(site)
    yield from (check for check in found if plugged or check.name != _SUBNET)
    yield from _ssh(site, next(iter(plugged.values()), None))


def _nothing_offered(site: Site) -> Check:
    detail = f"The catalog has no offer in {site.region} that fits."
    return missing(Topic.REGION, "offers", detail, f"orch catalog refresh aws --region {site.region}")


def _spec(site: Site, offer: Offer) -> MachineSpec:
    """Return the spec that `up` would use: with the same tags, disk and zone."""
    return MachineSpec(
        id="orch-doctor",
        attempt=0,
        offer=replace(offer, region=site.region),
        disk=site.disk,
        deadline=datetime.now(UTC) + timedelta(hours=1),
        labels={LABEL_LEASE: "doctor"},
        ssh_public_key=_KEY,
    )


# ---------------------------------------------------------------- network


def _networks(site: Site) -> tuple[dict[str, request.Network], tuple[Check, ...]]:
    """Return the network of each zone, and the checks: only a region without any subnet is an error."""
    plugged: dict[str, request.Network] = {}
    refusals: list[ProviderError] = []
    for zone in dict.fromkeys(offer.zone for offer in site.offers):
        try:
            plugged[zone] = network.find(site.clients, site.region, zone, site.settings)
        except ProviderError as error:
            refusals.append(error)
            if error.fault is not Fault.CAPACITY:
                break
    return plugged, (_network_check(site, plugged, refusals),)


def _network_check(
    site: Site, plugged: Mapping[str, request.Network], refusals: Sequence[ProviderError]
) -> Check:
    if plugged:
        return ok(
            Topic.NETWORK, _SUBNET, f"there is one in {', '.join(zone or 'some zone' for zone in plugged)}"
        )
    error = refusals[0]
    name = "security group" if error.code.startswith("InvalidGroup") else _SUBNET
    if error.fault in (Fault.AUTH, Fault.TRANSIENT, Fault.UNKNOWN):
        return unknown(Topic.NETWORK, name, _unseen(error))
    if error.fault is Fault.CAPACITY:
        make = (
            "aws ec2 create-default-vpc" if not site.settings.subnets else "export ORCH_AWS_SUBNET=subnet-…"
        )
        return missing(Topic.NETWORK, name, f"{error.message}.", f"{make} --region {site.region}")
    variable = "ORCH_AWS_SECURITY_GROUP" if name == "security group" else "ORCH_AWS_SUBNET"
    return missing(Topic.NETWORK, name, error.message, error.next_command or f"unset {variable}")


def _unseen(error: ProviderError) -> str:
    """Return the text for something that could not be read; the missing permission is reported by another
    check.
    """
    cause = error.__cause__
    return (
        f"not seen: {refused_action(cause)} is refused"
        if error.fault is Fault.AUTH and cause
        else error.message
    )


def _ssh(site: Site, plugged: request.Network | None) -> Iterator[Check]:
    """Check whether the security groups admit ssh, and from where."""
    if plugged is None or not site.direct:
        return
    try:
        with asking(site.clients, site.region):
            answer = site.clients.ec2(site.region).describe_security_groups(GroupIds=list(plugged.groups))
    except ProviderError as error:
        yield unknown(Topic.NETWORK, "ssh", _unseen(error))
        return
    sources = sorted(
        source
        for group in answer["SecurityGroups"]
        for rule in group.get("IpPermissions", ())
        if _admits(rule)
        for source in _sources(rule)
    )
    name = ", ".join(plugged.groups)
    if not sources:
        remedy = (
            f"orch setup aws --region {site.region}    # or: aws ec2 authorize-security-group-ingress "
            f"--region {site.region} --group-id {plugged.groups[0]} --protocol tcp --port 22 "
            "--cidr YOUR.ADDRESS/32"
        )
        yield missing(Topic.NETWORK, name, "The security group does not admit ssh (port 22).", remedy)
    elif {"0.0.0.0/0", "::/0"} & set(sources):
        yield warning(
            Topic.NETWORK,
            name,
            f"The security group {name} admits ssh from anywhere.",
            f"aws ec2 revoke-security-group-ingress --region {site.region} --group-id {plugged.groups[0]} "
            "--protocol tcp --port 22 --cidr 0.0.0.0/0 && orch setup aws",
        )
    else:
        yield ok(
            Topic.NETWORK, name, f"admits ssh from {', '.join(sources)} only; your address must be among them"
        )


def _admits(rule: Mapping[str, Any]) -> bool:
    if rule.get("IpProtocol") == "-1":
        return True
    return rule.get("IpProtocol") == "tcp" and rule.get("FromPort", 0) <= _SSH <= rule.get("ToPort", -1)


def _sources(rule: Mapping[str, Any]) -> Iterator[str]:
    yield from (str(each["CidrIp"]) for each in rule.get("IpRanges", ()))
    yield from (str(each["CidrIpv6"]) for each in rule.get("Ipv6Ranges", ()))
    yield from (str(each["PrefixListId"]) for each in rule.get("PrefixListIds", ()))
    yield from (str(each["GroupId"]) for each in rule.get("UserIdGroupPairs", ()))


# ---------------------------------------------------------------- image


def _image(site: Site, offer: Offer) -> tuple[request.Image | None, tuple[Check, ...]]:
    wanted = site.image or site.settings.image
    name = wanted or ("the newest with drivers" if offer.accelerator_count else "the newest Ubuntu")
    try:
        image = images.find(site.clients, site.region, _spec(site, offer), wanted)
    except ProviderError as error:
        if error.fault is Fault.INVALID:
            return None, (missing(Topic.IMAGE, name, error.message, "export ORCH_AWS_IMAGE=ami-…"),)
        return None, (unknown(Topic.IMAGE, name, _unseen(error)),)
    told = f"{image.id} ({image.name})"
    if not (site.settings.user or image.user):
        detail = f"The login user of {told} is not known."
        return image, (missing(Topic.IMAGE, name, detail, "export ORCH_AWS_USER=…"),)
    return image, (ok(Topic.IMAGE, name, told),)


# ---------------------------------------------------------------- quota


def quota(site: Site) -> tuple[Check, ...]:
    """Check the quota for this machine, and how much of it is used."""
    if not site.offers:
        return ()
    offer = site.offers[0]
    limit = quota_of(offer.instance_type, spot=offer.spot)
    if not limit.code:
        detail = f"{limit.name}: only the console shows it."
        return (unknown(Topic.QUOTA, limit.name, detail, limit.address(site.region)),)
    name = limit.code
    try:
        allowed, used = _limit(site, limit), _used(site, limit, offer)
    except ProviderError as error:
        return (unknown(Topic.QUOTA, name, _unseen(error), limit.address(site.region)),)
    told = f"{limit.name}: {used} of {allowed:g} vCPUs in use; {offer.instance_type} needs {offer.cpus}"
    if used + offer.cpus <= allowed:
        return (ok(Topic.QUOTA, name, told),)
    ask = str(limit.request(site.region)).replace("VCPUS", str(max(used + offer.cpus, round(2 * allowed))))
    return (missing(Topic.QUOTA, name, told, f"{ask}    # or: {limit.address(site.region)}"),)


def _limit(site: Site, limit: Quota) -> float:
    client = site.clients.client("service-quotas", site.region)
    wanted = {"ServiceCode": limit.service, "QuotaCode": limit.code}
    try:
        with asking(site.clients, site.region):
            answer = client.get_service_quota(**wanted)
    except ProviderError as error:
        if error.code != "NoSuchResourceException":
            raise
        with asking(site.clients, site.region):
            answer = client.get_aws_default_service_quota(**wanted)
    return float(answer["Quota"]["Value"])


def _used(site: Site, limit: Quota, offer: Offer) -> int:
    """Return the vCPUs of pending and running instances that count against the same quota."""
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    cpus = _cpus_by_type()
    with asking(site.clients, site.region):
        pages = site.clients.ec2(site.region).get_paginator("describe_instances").paginate(Filters=states)
        found = [one for page in pages for each in page["Reservations"] for one in each["Instances"]]
    return sum(
        _cpus(instance, cpus)
        for instance in found
        if (instance.get("InstanceLifecycle") == "spot") == offer.spot
        and quota_of(instance["InstanceType"], spot=offer.spot) == limit
    )


def _cpus(instance: Mapping[str, Any], cpus: Mapping[str, int]) -> int:
    options = instance.get("CpuOptions") or {}
    return cpus.get(instance["InstanceType"]) or options.get("CoreCount", 0) * options.get(
        "ThreadsPerCore", 1
    )


def _cpus_by_type() -> dict[str, int]:
    from orchestrator import catalog

    return {kind.instance_type: kind.cpus for kind in catalog.load("aws").kinds}
