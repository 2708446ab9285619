"""Every permission that orch's calls to AWS and Google Cloud need: the only table of them.

`orch doctor` checks each of them, error messages name them, terraform/ grants them, and a test compares the
table with the calls in the code. Plain data: no cloud's library is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import aws, gcp
from .gcp import APIS, BILLING, COMPUTE, RESOURCE_MANAGER
from .kinds import OUR_NAMES, OUR_TAG, Api, Grant, Permission, Use

__all__ = [
    "APIS",
    "BILLING",
    "COMPUTE",
    "OUR_NAMES",
    "OUR_TAG",
    "RESOURCE_MANAGER",
    "TABLE",
    "Api",
    "Grant",
    "Permission",
    "Use",
    "named",
    "of",
    "policy",
    "taken_by",
]

TABLE: tuple[Permission, ...] = (*aws.PERMISSIONS, *gcp.PERMISSIONS)


def of(cloud: str, *, needed: Use | None = None) -> tuple[Permission, ...]:
    """Return the permissions of one cloud, for one use or for all, in the order in which they are first
    needed.
    """
    return tuple(one for one in TABLE if one.cloud == cloud and (needed is None or needed in one.needed))


def named(name: str) -> Permission:
    """Return the permission with this name. Raises KeyError if the table does not have it."""
    return _BY_NAME[name]


def taken_by(call: str) -> tuple[Permission, ...]:
    """Return the permissions that a call needs, for instance `ec2.run_instances`; () for a call that needs
    none or that orch does not make.
    """
    return tuple(one for one in TABLE if call in one.calls)


def policy(permissions: Sequence[Permission]) -> dict[str, Any]:
    """Return an AWS policy document that allows exactly these; equal grants share a statement."""
    actions: dict[Grant, list[str]] = {}
    for one in permissions:
        for grant in one.grants:
            actions.setdefault(grant, []).append(one.name)
    return {
        "Version": "2012-10-17",
        "Statement": [_statement(names, grant) for grant, names in actions.items()],
    }


def _statement(names: Sequence[str], grant: Grant) -> dict[str, Any]:
    said: dict[str, Any] = {"Effect": "Allow", "Action": list(names), "Resource": list(grant.resources)}
    conditions: dict[str, dict[str, str]] = {}
    for operator, key, value in grant.conditions:
        conditions.setdefault(operator, {})[key] = value
    return {**said, "Condition": conditions} if conditions else said


_BY_NAME: Mapping[str, Permission] = {one.name: one for one in TABLE}
