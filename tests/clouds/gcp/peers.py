"""Instances whose firewall rule admits the same addresses that it is for reach each other."""

from __future__ import annotations

from tests.clouds.gcp.errors import Json
from tests.clouds.gcp.machines import Running
from tests.clouds.gcp.world import World
from tests.clouds.vpc import Member


def connect(world: World) -> None:
    """Let firewall rules decide who of the running machines reaches whom."""
    with world.changed:
        running = [one.machine for one in world.instances.values() if isinstance(one.machine, Running)]
        rules = [rule for rule in world.settings.firewalls if _is_mutual(rule)]
    world.network.set(
        {
            rule["name"]: frozenset(
                Member(one.pid, one.address)
                for one in running
                if f"{one.address}/32" in rule["sourceRanges"] and one.alive()
            )
            for rule in rules
        }
    )


def _is_mutual(rule: Json) -> bool:
    """Whether it lets single addresses reach each other, in both directions."""
    ranges = rule.get("sourceRanges", [])
    single = bool(ranges) and all(text.endswith("/32") for text in ranges)
    return single and bool(rule.get("allowed")) and ranges == rule.get("destinationRanges")
