"""What governs a project besides permissions: firewall rules, and the policies of its organisation."""

from __future__ import annotations

from tests.clouds.gcp.call import Call, listed
from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.sold import EPOCH
from tests.clouds.gcp.world import World


def list_firewalls(call: Call) -> Json:
    rules = [_rule(call.world, rule) for rule in call.world.settings.firewalls]
    return listed(call, "firewall", "global/firewalls", rules)


def _rule(world: World, rule: Json) -> Json:
    return {
        "kind": "compute#firewall",
        "id": str(5000 + sum(map(ord, rule["name"]))),
        "creationTimestamp": EPOCH,
        "disabled": False,
        "selfLink": world.url("global", "firewalls", rule["name"]),
        **rule,
        "network": world.url("global", "networks", rule["network"]),
    }


def effective_policy(world: World, body: object) -> Json:
    """The answer of projects.getEffectiveOrgPolicy; who may not see policies is refused as by Google."""
    constraint = body.get("constraint", "") if isinstance(body, dict) else ""
    if not isinstance(constraint, str) or not constraint.startswith("constraints/"):
        raise ApiError(400, "badRequest", "Invalid JSON payload received: constraint must name one.")
    if "orgpolicy.policy.get" in world.settings.denied:
        raise ApiError(403, "forbidden", "The caller does not have permission")
    return {"constraint": constraint, **world.settings.policies.get(constraint.partition("/")[2], {})}
