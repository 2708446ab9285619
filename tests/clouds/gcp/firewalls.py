"""The firewall rules of a project: what each may say, and the operations that change them.

https://cloud.google.com/firewall/docs/firewalls
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from tests.clouds.gcp import operations, peers
from tests.clouds.gcp.call import Call, listed
from tests.clouds.gcp.errors import ApiError, Json, exists, invalid, not_found, required
from tests.clouds.gcp.faults import OPERATION_KINDS, Place
from tests.clouds.gcp.sold import EPOCH
from tests.clouds.gcp.world import World

_FIXED = ("name", "network", "direction")
_PROTOCOLS = ("tcp", "udp", "sctp")
"""Those that have ports."""
_RANGES = 5000
_DESCRIPTION = 2048


def list_rules(call: Call) -> Json:
    with call.world.changed:
        rules = [_shown(call.world, rule) for rule in call.world.settings.firewalls]
    return listed(call, "firewall", "global/firewalls", rules)


def get(call: Call) -> Json:
    return _shown(call.world, _rule(call))


def insert(call: Call) -> Json:
    world, name = call.world, str(call.body.get("name", ""))
    if not name:
        raise required("name")
    network = _network(world, str(call.body.get("network", "global/networks/default")))
    rule = {"direction": "INGRESS", "priority": 1000, "description": "", **call.body, "network": network}
    _check(rule)
    if rule["direction"] == "INGRESS" and not any(rule.get(f"source{what}") for what in _SOURCES):
        rule["sourceRanges"] = ["0.0.0.0/0"]
    with world.change():
        before = call.repeated()
        if before is not None:
            return before
        if name in world.rules_at_work or any(each["name"] == name for each in world.settings.firewalls):
            raise exists(_path(world, name))
        return _begin(call, "insert", name, lambda: world.settings.firewalls.append(rule))


def patch(call: Call) -> Json:
    """Lists replace those that are there; what is not sent stays."""
    world = call.world
    with world.change():
        before = call.repeated()
        if before is not None:
            return before
        rule = _rule(call)
        changed = {**call.body}
        if "network" in changed:
            changed["network"] = _network(world, str(changed["network"]))
        for field in _FIXED:
            if field in changed and changed[field] != rule.get(field, "INGRESS"):
                raise invalid(field, changed[field], "It cannot be changed.")
        _check({**rule, **changed})
        return _begin(call, "patch", str(rule["name"]), lambda: rule.update(changed))


def delete(call: Call) -> Json:
    world = call.world
    with world.change():
        before = call.repeated()
        if before is not None:
            return before
        rule = _rule(call)
        return _begin(call, "delete", str(rule["name"]), lambda: world.settings.firewalls.remove(rule))


# ------------------------------------------------------------ inside


_SOURCES = ("Ranges", "Tags", "ServiceAccounts")


def _rule(call: Call) -> Json:
    world, name = call.world, call.path["firewall"]
    with world.changed:
        found = next((rule for rule in world.settings.firewalls if rule["name"] == name), None)
    if found is not None:
        return found
    if name in world.rules_at_work and not call.method.endswith(".get"):
        raise _not_ready(world, name)
    raise not_found(_path(world, name))


def _begin(call: Call, kind: str, name: str, change: Callable[[], None]) -> Json:
    """Begin it; a rule with which something is being done is not ready for more."""
    world = call.world
    if name in world.rules_at_work:
        raise _not_ready(world, name)
    world.rules_at_work[name] = kind

    def effect() -> None:
        with world.change():
            del world.rules_at_work[name]
            if call.fault is not None:
                place = Place(world.settings.project, "", _path(world, name))
                raise OPERATION_KINDS[call.fault.kind](call.fault, place)
            change()
        peers.connect(world)

    target = f"global/firewalls/{name}", _identity(name)
    return operations.begin(world, kind, operations.PROJECT, target, effect, request=call.request)


def _not_ready(world: World, name: str) -> ApiError:
    return ApiError(400, "resourceNotReady", f"The resource '{_path(world, name)}' is not ready")


def _path(world: World, name: str) -> str:
    return world.path("global", "firewalls", name)


def _identity(name: str) -> str:
    return str(5000 + sum(map(ord, name)))


def _shown(world: World, rule: Json) -> Json:
    return {
        "kind": "compute#firewall",
        "id": _identity(rule["name"]),
        "creationTimestamp": EPOCH,
        "disabled": False,
        "selfLink": world.url("global", "firewalls", rule["name"]),
        **rule,
        "network": world.url("global", "networks", rule["network"]),
    }


def _network(world: World, reference: str) -> str:
    """The name of a network of this project."""
    found = re.search(r"(?:(?:^|/)projects/([^/]+)/)?global/networks/([^/]+)$", reference)
    if found is None:
        raise invalid("network", reference, "The URL is malformed.")
    if found[1] not in (None, world.settings.project) or not world.has_network(found[2]):
        raise invalid("network", reference, "The referenced network resource cannot be found.")
    return found[2]


def _check(rule: Json) -> None:
    """ApiError for what a rule may not say."""
    if bool(rule.get("allowed")) == bool(rule.get("denied")):
        raise invalid("allowed", "", "Exactly one of allowed and denied must be specified.")
    for kind in ("allowed", "denied"):
        for number, one in enumerate(rule.get(kind, ())):
            _check_traffic(f"{kind}[{number}]", one)
    if rule["direction"] == "EGRESS" and (rule.get("sourceTags") or rule.get("sourceServiceAccounts")):
        raise invalid("sourceTags", "", "It cannot be specified for EGRESS.")
    for kind in ("sourceRanges", "destinationRanges"):
        _check_ranges(kind, rule.get(kind, []))
    if not 0 <= int(rule["priority"]) <= 65535:
        raise invalid("priority", rule["priority"], "Must be between 0 and 65535.")
    if len(rule.get("description", "")) > _DESCRIPTION:
        raise invalid("description", "", f"Must be at most {_DESCRIPTION} characters long.")


def _check_traffic(field: str, one: Json) -> None:
    protocol = str(one.get("IPProtocol", ""))
    if not protocol:
        raise required(f"{field}.IPProtocol")
    if one.get("ports") and protocol.lower() not in _PROTOCOLS:
        raise invalid(f"{field}.ports", one["ports"], f"{protocol} has no ports.")
    for text in one.get("ports", ()):
        found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", text)
        if found is None or not 0 <= int(found[1]) <= int(found[2] or found[1]) <= 65535:
            raise invalid(f"{field}.ports", text, "Must be a port, or a range of ports.")


def _check_ranges(field: str, ranges: list[str]) -> None:
    if len(ranges) > _RANGES:
        raise invalid(field, "", f"At most {_RANGES} ranges are allowed.")
    for number, text in enumerate(ranges):
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise invalid(f"{field}[{number}]", text, "Must be a CIDR address range.") from None
