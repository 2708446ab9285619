"""What governs a project besides permissions: APIs, and the policies of its organisation."""

from __future__ import annotations

import re

from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.world import World


def service(world: World, path: str, verb: str) -> Json:
    """services.get and services.enable of the Service Usage API."""
    found = re.fullmatch(r"/v1/projects/([^/]+)/services/([a-z.]+)(:enable)?", path)
    if found is None or found[1] != world.settings.project or (verb == "POST") != bool(found[3]):
        raise ApiError(404, "notFound", f"The requested URL {path} was not found on this server.")
    if found[3] and "serviceusage.services.enable" in world.settings.denied:
        raise ApiError(403, "forbidden", "The caller does not have permission")
    with world.change():
        if found[3]:
            world.settings.disabled = [name for name in world.settings.disabled if name != found[2]]
            return {"name": f"operations/acf.{world.new_id()}"}
        state = "DISABLED" if found[2] in world.settings.disabled else "ENABLED"
        return {"name": path.removeprefix("/v1/"), "state": state}


def require_enabled(world: World, name: str) -> None:
    if name in world.settings.disabled:
        message = f"{name} has not been used in project {world.settings.number} before or it is disabled."
        raise ApiError(403, "accessNotConfigured", message)


def effective_policy(world: World, body: object) -> Json:
    """The answer of projects.getEffectiveOrgPolicy; who may not see policies is refused as by Google."""
    constraint = body.get("constraint", "") if isinstance(body, dict) else ""
    if not isinstance(constraint, str) or not constraint.startswith("constraints/"):
        raise ApiError(400, "badRequest", "Invalid JSON payload received: constraint must name one.")
    if "orgpolicy.policy.get" in world.settings.denied:
        raise ApiError(403, "forbidden", "The caller does not have permission")
    return {"constraint": constraint, **world.settings.policies.get(constraint.partition("/")[2], {})}
