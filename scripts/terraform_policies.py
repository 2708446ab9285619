#!/usr/bin/env python3
"""Write the policies that terraform/ grants, from the one table of permissions that orch's calls take.

Run it after orchestrator/providers/permissions has changed; a test holds the files equal to the table.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from orchestrator.providers import permissions  # noqa: E402
from orchestrator.providers.permissions import Permission  # noqa: E402
from orchestrator.providers.permissions.gcp import IDENTITY  # noqa: E402

GC_CALLS = {
    "aws": (
        "ec2.describe_regions",
        "ec2.describe_instances",
        "ec2.terminate_instances",
        "cloudwatch.delete_alarms",
        "ec2.describe_security_groups",
        "ec2.delete_security_group",
        "ec2.describe_placement_groups",
        "ec2.delete_placement_group",
    ),
    "gcp": (
        "compute.instances.aggregatedList",
        "compute.instances.get",
        "compute.instances.delete",
        "compute.zoneOperations.get",
        "compute.firewalls.list",
        "compute.firewalls.delete",
        "compute.globalOperations.get",
        "compute.resourcePolicies.aggregatedList",
        "compute.resourcePolicies.delete",
        "compute.regionOperations.get",
    ),
}
"""What `orch gc` calls: the reaper may do nothing else. A test compares it with what is really called."""

TUNNEL = {
    ("ORCH_AWS_ADDRESS", "ssm"),
    ("ORCH_AWS_INSTANCE_PROFILE", ".+"),
    ("ORCH_GCP_INTERNAL", "iap"),
}
"""Settings of machines without a public address: what these alone take is granted where it is asked for."""

_NAMES = re.compile(
    r"projects/\{project\}/(?:zones/\*|global)/(instances|disks|firewalls|images)/([a-z-]+)\*"
)


def files() -> dict[str, str]:
    """Text of each file, by its path under the project."""
    aws, gcp = permissions.of("aws"), permissions.of("gcp")
    (tunnel,) = roles([one for one in gcp if one.setting in TUNNEL]).values()
    return {
        "terraform/aws/policy.json": _text(permissions.policy(_always(aws))),
        "terraform/aws/tunnel-policy.json": _text(
            permissions.policy([one for one in aws if one.setting in TUNNEL])
        ),
        "terraform/aws/reaper-policy.json": _text(permissions.policy(_of_gc("aws", aws))),
        "terraform/gcp/roles.json": _text(roles(_always(gcp))),
        "terraform/gcp/tunnel-roles.json": _text({"tunnel": tunnel}),
        "terraform/gcp/reaper-roles.json": _text(roles(_of_gc("gcp", gcp))),
        "terraform/gcp/apis.json": _text(sorted(api.name for api in permissions.APIS)),
    }


def roles(wanted: Sequence[Permission]) -> dict[str, Any]:
    """Permissions of Google by the condition under which they are granted: a custom role each.

    A pattern that holds for all of a kind needs no condition: a project's role reaches no further.
    """
    found: dict[str, Any] = {}
    for one in wanted:
        for grant in one.grants:
            for resource in grant.resources:
                name, condition = _condition(resource)
                role = found.setdefault(name, {"condition": condition, "permissions": []})
                role["permissions"].append(one.name)
    return {name: {**role, "permissions": sorted(role["permissions"])} for name, role in found.items()}


def _condition(resource: str) -> tuple[str, str]:
    named = _NAMES.fullmatch(resource)
    if named:
        kind, beginning = named.groups()
        return kind, f"resource.name.extract('/{kind}/{{name}}').startsWith('{beginning}')"
    if resource == "*" or resource.endswith("/*"):
        return "project", ""
    raise SystemExit(f"Nobody has said how {resource} becomes a condition of Google's IAM.")


def _always(wanted: Sequence[Permission]) -> list[Permission]:
    return [one for one in wanted if one.setting not in TUNNEL and one.when != IDENTITY]


def _of_gc(cloud: str, wanted: Sequence[Permission]) -> list[Permission]:
    return [one for one in wanted if set(one.calls) & set(GC_CALLS[cloud])]


def _text(value: Mapping[str, Any] | Sequence[str]) -> str:
    return json.dumps(value, indent=2) + "\n"


if __name__ == "__main__":
    for name, text in files().items():
        (ROOT / name).write_text(text)
