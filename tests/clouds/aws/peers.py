"""Instances whose security group admits itself reach each other."""

from __future__ import annotations

from typing import Any

from tests.clouds.aws.life import LIVES, Life
from tests.clouds.vpc import Member, Network

CHANGES = (
    "AuthorizeSecurityGroupIngress",
    "RevokeSecurityGroupIngress",
    "ModifyNetworkInterfaceAttribute",
    "DeleteSecurityGroup",
)
_NETWORK = Network()


def connect() -> None:
    """Let security groups decide who of the running machines reaches whom."""
    groups: dict[str, set[Member]] = {}
    for life in LIVES.all():
        if _has_own_network(life) and life.guest is not None:
            for group in (each for nic in life.instance.nics.values() for each in nic.group_set):
                if _admits_itself(group):
                    member = Member(life.guest._pid, life.guest.address)
                    groups.setdefault(group.id, set()).add(member)
    _NETWORK.set({name: frozenset(members) for name, members in groups.items()})


def disconnect() -> None:
    _NETWORK.set({})


def _has_own_network(life: Life) -> bool:
    return life.guest is not None and not life.ending and not life.guest.address.startswith("127.")


def _admits_itself(group: Any) -> bool:
    return any((rule.source_group or {}).get("GroupId") == group.id for rule in group.ingress_rules)
