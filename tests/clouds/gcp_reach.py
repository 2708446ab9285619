"""What the firewall rules of the emulated Google Cloud let through, as a VPC network decides it.

https://cloud.google.com/firewall/docs/firewalls: the rule with the lowest number of priority decides, of
equal ones the one that denies; without any, nothing comes in and everything goes out.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.model import Machine
from tests.clouds.gcp import Cloud

PREFIX = "orch-group-"
Found = Mapping[str, Any]


@dataclass(frozen=True)
class Packet:
    """The first of a TCP connection."""

    source: Found
    target: Found
    port: int

    @property
    def addresses(self) -> tuple[str, str]:
        return _interface(self.source)["networkIP"], _interface(self.target)["networkIP"]


def reaches(cloud: Cloud, machine: Machine, address: str, port: int) -> bool:
    """Whether TCP from the machine to the address is let out at one end and in at the other."""
    state = cloud.state()
    running = [one for one in state["instances"] if one["status"] == "RUNNING"]
    source = next(one for one in running if one["name"] == machine.id)
    rules = state["settings"]["firewalls"]
    for target in running:
        here, there = _interface(source), _interface(target)
        if there.get("networkIP") == address and here["network"] == there["network"]:
            packet = Packet(source, target, port)
            return _passes(rules, packet, "EGRESS") and _passes(rules, packet, "INGRESS")
    return False


def groups(cloud: Cloud) -> Sequence[str]:
    """The names of the firewall rules and placement policies that were made for groups of machines."""
    state = cloud.state()
    found = [*state["settings"]["firewalls"], *state["placements"]]
    return [one["name"] for one in found if one["name"].startswith(PREFIX)]


def _passes(rules: Sequence[Found], packet: Packet, direction: str) -> bool:
    fitting = [rule for rule in rules if _fits(rule, packet, direction)]
    if not fitting:
        return direction == "EGRESS"
    decisive = min(fitting, key=lambda rule: (rule.get("priority", 1000), "allowed" in rule))
    return "allowed" in decisive


def _fits(rule: Found, packet: Packet, direction: str) -> bool:
    end = packet.target if direction == "INGRESS" else packet.source
    network = str(_interface(end)["network"]).rpartition("/")[2]
    if (rule.get("direction", "INGRESS"), rule["network"]) != (direction, network) or rule.get("disabled"):
        return False
    tags = rule.get("targetTags")
    source, target = packet.addresses
    return (
        (not tags or bool(_tags(end) & set(tags)))
        and _comes_from(rule, packet, source)
        and (not rule.get("destinationRanges") or _is_in(target, rule["destinationRanges"]))
        and any(_speaks(one, packet.port) for one in (*rule.get("allowed", ()), *rule.get("denied", ())))
    )


def _comes_from(rule: Found, packet: Packet, source: str) -> bool:
    ranges, tags = rule.get("sourceRanges", ()), rule.get("sourceTags", ())
    return not (ranges or tags) or _is_in(source, ranges) or bool(_tags(packet.source) & set(tags))


def _speaks(one: Found, port: int) -> bool:
    if one["IPProtocol"] not in ("tcp", "all"):
        return False
    spans = [text.partition("-") for text in one.get("ports", ())]
    return not spans or any(int(first) <= port <= int(last or first) for first, _, last in spans)


def _is_in(address: str, ranges: Sequence[str]) -> bool:
    return any(ipaddress.ip_address(address) in ipaddress.ip_network(one) for one in ranges)


def _tags(instance: Found) -> set[str]:
    return set(instance["tags"].get("items", ()))


def _interface(instance: Found) -> Found:
    found: Found = instance["networkInterfaces"][0]
    return found
