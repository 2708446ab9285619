"""Placement groups, which moto has not: made, described, deleted, and launched into.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-groups.html. In use in another zone:
bcbio/bcbio-nextgen-vm#45; deleted while instances end: scylladb/scylla-cluster-tests#6742; made twice:
cybertronai/ncluster#35.
"""

from __future__ import annotations

import fnmatch
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from moto.ec2.exceptions import DryRunClientError, EC2ClientError

from tests.clouds.aws.life import LIVES as _LIVES
from tests.clouds.aws.life import TERMINATED, Life
from tests.clouds.aws.requests import Request, Response, error
from tests.clouds.aws.settings import ACCOUNT, SETTINGS

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_STRATEGIES = ("cluster", "partition", "spread")


@dataclass(frozen=True)
class Group:
    region: str
    name: str
    strategy: str
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"pg-{hashlib.sha256(f'{self.region} {self.name}'.encode()).hexdigest()[:17]}"

    def members(self) -> list[Life]:
        """Its instances that are not terminated."""
        return [
            life
            for life in _LIVES.all()
            if life.region == self.region
            and life.instance.placement.group_name == self.name
            and life.instance.state != TERMINATED[0]
        ]


_GROUPS: dict[tuple[str, str], Group] = {}
_LOCK = threading.RLock()


def answer(request: Request) -> Response | None:
    """The answer to a call about placement groups; None to other calls."""
    call = _CALLS.get(request.action) if request.service == "ec2" else None
    if call is None:
        return None
    try:
        if request.parameters.get("DryRun", "").lower() == "true":
            raise DryRunClientError()
        with _LOCK:
            inner = call(request)
    except EC2ClientError as refused:
        status = 412 if isinstance(refused, DryRunClientError) else 400
        return error(request, status, str(refused.code), str(refused.message))
    text = f"<requestId>r</requestId>{inner}"
    body = f'<{request.action}Response xmlns="{_NAMESPACE}">{text}</{request.action}Response>'
    return Response(200, (("Content-Type", "text/xml;charset=UTF-8"),), body.encode())


def enter(region: str, name: str | None, info: Mapping[str, Any], zone: str) -> None:
    """EC2ClientError where an instance of this type cannot be launched into the group in this zone."""
    if not name:
        return
    group = _known(region, name)
    strategies = info.get("PlacementGroupInfo", {}).get("SupportedStrategies", ())
    if group.strategy not in strategies:
        raise EC2ClientError(
            "InvalidParameterCombination",
            f"{group.strategy.title()} placement groups are not supported by the "
            f"'{info['InstanceType']}' instance type. Specify a supported instance type or change the "
            "placement group strategy, and try again.",
        )
    members = group.members()
    others = {life.zone for life in members} - {zone}
    if group.strategy == "cluster" and others:
        raise EC2ClientError(
            "InvalidPlacementGroup.InUse",
            f"The placement group '{name}' is in use in another availability zone: {others.pop()}",
        )
    if len(members) >= SETTINGS.crowded.get(zone, len(members) + 1):
        raise EC2ClientError(
            "InsufficientInstanceCapacity",
            f"We currently do not have sufficient {info['InstanceType']} capacity to launch all of the "
            "additional requested instances into Placement Group '{name}'.".replace("{name}", name),
        )


# ------------------------------------------------------------ inside


def _create(request: Request) -> str:
    given = request.parameters
    name, strategy = given.get("GroupName", ""), given.get("Strategy", "cluster")
    if not name or len(name) > 255 or not name.isascii():
        raise EC2ClientError("InvalidParameterValue", f"Value ({name}) for parameter groupName is invalid.")
    if strategy not in _STRATEGIES:
        raise EC2ClientError(
            "InvalidParameterValue", f"Value ({strategy}) for parameter strategy is invalid."
        )
    if (request.region, name) in _GROUPS:
        raise EC2ClientError(
            "InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists."
        )
    group = Group(request.region, name, strategy, _tags(given))
    _GROUPS[request.region, name] = group
    return f"<placementGroup>{_shown(group)}</placementGroup>"


def _describe(request: Request) -> str:
    names = [value for key, value in request.parameters.items() if key.startswith("GroupName.")]
    found = [_known(request.region, name) for name in names] or [
        group for (region, _), group in _GROUPS.items() if region == request.region
    ]
    filters = _filters(request.parameters)
    items = (f"<item>{_shown(group)}</item>" for group in found if _fits(group, filters))
    return f"<placementGroupSet>{''.join(items)}</placementGroupSet>"


def _delete(request: Request) -> str:
    group = _known(request.region, request.parameters.get("GroupName", ""))
    if group.members():
        raise EC2ClientError(
            "InvalidPlacementGroup.InUse",
            f"The placement group '{group.name}' is in use and may not be deleted.",
        )
    del _GROUPS[group.region, group.name]
    return "<return>true</return>"


_CALLS: Mapping[str, Callable[[Request], str]] = {
    "CreatePlacementGroup": _create,
    "DescribePlacementGroups": _describe,
    "DeletePlacementGroup": _delete,
}


def _known(region: str, name: str) -> Group:
    group = _GROUPS.get((region, name))
    if group is None:
        raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The placement group '{name}' is unknown.")
    return group


def _tags(given: Mapping[str, str]) -> dict[str, str]:
    start, found = "TagSpecification.1.Tag.", {}
    if given.get("TagSpecification.1.ResourceType", "placement-group") != "placement-group":
        raise EC2ClientError("InvalidParameterValue", "The tags are for another type of resource.")
    for key, value in given.items():
        if key.startswith(start) and key.endswith(".Key"):
            found[value] = given.get(f"{key.removesuffix('.Key')}.Value", "")
    return found


def _filters(given: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, name in given.items():
        if key.startswith("Filter.") and key.endswith(".Name"):
            start = f"{key.removesuffix('Name')}Value."
            found[name] = [value for other, value in given.items() if other.startswith(start)]
    return found


def _fits(group: Group, filters: Mapping[str, Sequence[str]]) -> bool:
    def matches(value: str, patterns: Sequence[str]) -> bool:
        return any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns)

    for name, patterns in filters.items():
        if name == "tag-key":
            fits = any(matches(key, patterns) for key in group.tags)
        elif name.startswith("tag:"):
            key = name.removeprefix("tag:")
            fits = key in group.tags and matches(group.tags[key], patterns)
        else:
            known = {"group-name": group.name, "strategy": group.strategy, "state": "available"}
            if name not in known:
                raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")
            fits = matches(known[name], patterns)
        if not fits:
            return False
    return True


def _shown(group: Group) -> str:
    tags = "".join(
        f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>"
        for key, value in group.tags.items()
    )
    facts = {
        "groupName": group.name,
        "groupId": group.id,
        "groupArn": f"arn:aws:ec2:{group.region}:{ACCOUNT}:placement-group/{group.name}",
        "strategy": group.strategy,
        "state": "available",
    }
    text = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in facts.items())
    return f"{text}<tagSet>{tags}</tagSet>"
