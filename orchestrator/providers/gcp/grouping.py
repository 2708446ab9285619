"""What is left of groups in which no machine is any more: firewall rules and placement policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import ProviderError
from orchestrator.model import LABEL_LEASE
from orchestrator.providers.gcp import group as firewall_rule
from orchestrator.providers.gcp import placement
from orchestrator.providers.gcp.calls import Json
from orchestrator.providers.gcp.names import GROUP_PREFIX, last
from orchestrator.providers.gcp.policy_calls import PolicyCalls


@dataclass(frozen=True)
class _Needed:
    """What the existing machines have: their leases, numeric ids and resource policies."""

    leases: frozenset[str]
    numbers: frozenset[str]
    policies: frozenset[str]

    def rule(self, rule: Json) -> bool:
        is_member = not self.numbers.isdisjoint(firewall_rule.members_of(rule))
        return is_member or firewall_rule.group_of(rule) in self.leases

    def policy(self, policy: Json) -> bool:
        return policy["name"] in self.policies or placement.group_of(policy) in self.leases


def prune(calls: PolicyCalls, *, dry_run: bool) -> Sequence[str]:
    """Remove them, and return their groups; see Provider.prune."""
    rules = [rule for rule in calls.firewalls(f"{GROUP_PREFIX}.*") if firewall_rule.group_of(rule)]
    policies = [policy for policy in placement.ours(calls) if placement.group_of(policy)]
    if not rules and not policies:
        return ()
    needed = _needed(calls)
    left: dict[str, None] = {}
    for rule in rules:
        if not needed.rule(rule):
            left[firewall_rule.group_of(rule)] = None
            if not dry_run:
                calls.remove_firewall(str(rule["name"]))
    for policy in policies:
        if not needed.policy(policy) and (dry_run or _removed(calls, policy)):
            left[placement.group_of(policy)] = None
    return tuple(left)


def _needed(calls: PolicyCalls) -> _Needed:
    found = [instance for instance, _ in calls.instances(f"labels.{LABEL_LEASE}:*")]
    return _Needed(
        frozenset(str(one["labels"][LABEL_LEASE]) for one in found),
        frozenset(str(one["id"]) for one in found),
        frozenset(last(str(link)) for one in found for link in one.get("resourcePolicies", ())),
    )


def _removed(calls: PolicyCalls, policy: Json) -> bool:
    """Delete it. Google refuses that if a machine was created with it meanwhile."""
    try:
        calls.remove_policy(last(str(policy["region"])), str(policy["name"]))
    except ProviderError as error:
        if not placement.is_in_use(error):
            raise
        return False
    return True
