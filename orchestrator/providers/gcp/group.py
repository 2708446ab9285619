"""The firewall rule through which the machines of a group connect to each other.

It admits TCP at the group's ports from the internal addresses of its members to the same addresses; the
machines themselves are not changed. Addresses are reused by later machines, so the rule's description also
has the numeric ids of the members, which are unique. Every step checks the present state first, so it may be
repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import MachineState
from orchestrator.providers.gcp import seen
from orchestrator.providers.gcp.calls import Calls
from orchestrator.providers.gcp.names import GROUP_PREFIX, described_group, describes, group_name, last

Json = Mapping[str, Any]

_PRIORITY = 1000
_MEMBERS = "; members "


def join(calls: Calls, group: str, found: Sequence[tuple[str, Json | None]], ports: range) -> Sequence[str]:
    """Connect these instances, each with its name, disconnect all others, and return the internal
    addresses.
    """
    instances = [_running(name, instance) for name, instance in found]
    networks = {str(instance["networkInterfaces"][0]["network"]) for instance in instances}
    if len(networks) != 1:
        raise ProviderError(
            Fault.INVALID, f"The machines of {group} are in several networks.", code="SeveralNetworks"
        )
    addresses = [seen.addresses(instance)[1] for instance in instances]
    members = sorted(str(instance["id"]) for instance in instances)
    wanted = _rule(group, networks.pop(), addresses, members, ports)
    there = calls.firewall(wanted["name"])
    if there is None or not _is_same(there, wanted):
        _require_free(calls, instances, group)
        _set(calls, there, wanted)
    return addresses


def members_of(rule: Json) -> Sequence[str]:
    """Return the numeric ids of the machines that the rule connects."""
    return str(rule.get("description", "")).partition(_MEMBERS)[2].split()


def group_of(rule: Json) -> str:
    return described_group(str(rule.get("description", "")))


def _running(name: str, instance: Json | None) -> Json:
    if instance is None or seen.state(instance) is not MachineState.RUNNING:
        raise ProviderError(Fault.INVALID, f"{name} is not running.", code="NotRunning")
    return instance


def _rule(
    group: str, network: str, addresses: Sequence[str], members: Sequence[str], ports: range
) -> dict[str, Any]:
    ranges = sorted(f"{address}/32" for address in addresses)
    span = f"{ports[0]}-{ports[-1]}" if len(ports) > 1 else str(ports[0])
    return {
        "name": group_name(group),
        "description": f"{describes(group)}{_MEMBERS}{' '.join(members)}",
        "network": network,
        "direction": "INGRESS",
        "priority": _PRIORITY,
        "sourceRanges": ranges,
        "destinationRanges": ranges,
        "allowed": [{"IPProtocol": "tcp", "ports": [span]}],
        "disabled": False,
    }


def _is_same(there: Json, wanted: Json) -> bool:
    return last(str(there["network"])) == last(wanted["network"]) and all(
        _comparable(there.get(key)) == _comparable(value) for key, value in wanted.items() if key != "network"
    )


def _comparable(value: Any) -> Any:
    """Return a form for comparison: the order of lists is ignored, and so are false values, which Google
    omits.
    """
    return sorted(map(str, map(_sorted, value))) if isinstance(value, list) else value or None


def _sorted(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, Mapping) else value


def _require_free(calls: Calls, instances: Sequence[Json], group: str) -> None:
    for rule in calls.firewalls(f"{GROUP_PREFIX}.*"):
        members = members_of(rule)
        for instance in instances:
            if str(instance["id"]) in members and rule["name"] != group_name(group):
                raise ProviderError(
                    Fault.CONFLICT, f"{instance['name']} is in {rule['name']} already.", code="InAnotherGroup"
                )


def _set(calls: Calls, there: Json | None, wanted: Json) -> None:
    """Create the rule, or change an existing one; for another network it is created again."""
    if there is not None and last(str(there["network"])) != last(wanted["network"]):
        calls.remove_firewall(wanted["name"])
        there = None
    if there is None:
        there = _made(calls, wanted)
    if not _is_same(there, wanted):
        fixed = ("name", "network", "direction")
        calls.change_firewall(
            wanted["name"], {key: value for key, value in wanted.items() if key not in fixed}
        )


def _made(calls: Calls, wanted: Json) -> Json:
    """Create the rule, unless another call, or an earlier one without an answer, has created it."""
    try:
        calls.make_firewall(wanted)
    except ProviderError as error:
        if error.fault is not Fault.CONFLICT:
            raise
        there = calls.firewall(wanted["name"])
        if there is None:
            raise ProviderError(Fault.TRANSIENT, error.message, code=error.code) from error
        return there
    return wanted
