"""What governs a project besides permissions: APIs, and the policies of its organisation."""

from __future__ import annotations

import re
import time

from werkzeug.wrappers import Request

from tests.clouds.gcp.errors import ApiError, Json, error_info
from tests.clouds.gcp.world import World


def service(world: World, path: str, verb: str) -> Json:
    """services.get and services.enable of the Service Usage API."""
    found = re.fullmatch(r"/v1/projects/([^/]+)/services/([a-z.]+)(:enable)?", path)
    if found is None or found[1] != world.settings.project or (verb == "POST") != bool(found[3]):
        raise ApiError(404, "notFound", f"The requested URL {path} was not found on this server.")
    if found[3] and "serviceusage.services.enable" in world.settings.denied:
        raise ApiError(403, "forbidden", "The caller does not have permission")
    if found[3] and not world.settings.billed:
        raise _unbilled(world, found[2])
    with world.change():
        if found[3]:
            if found[2] in world.settings.disabled:
                world.enabled_at[found[2]] = time.time()
            world.settings.disabled = [name for name in world.settings.disabled if name != found[2]]
            return {"name": f"operations/acf.{world.new_id()}"}
        state = "DISABLED" if found[2] in world.settings.disabled else "ENABLED"
        return {"name": path.removeprefix("/v1/"), "state": state}


def _unbilled(world: World, name: str) -> ApiError:
    message = (
        f"Billing account for project '{world.settings.number}' is not found. Billing must be enabled for "
        f"activation of service(s) '{name}' to proceed."
    )
    why = error_info("UREQ_PROJECT_BILLING_NOT_FOUND", project=str(world.settings.number), services=name)
    return ApiError(400, "failedPrecondition", message, details=[why], code="FAILED_PRECONDITION")


def require_enabled(world: World, name: str) -> None:
    spreading = time.time() < world.enabled_at.get(name, 0.0) + world.settings.enabling_s
    if name in world.settings.disabled or spreading:
        message = (
            f"{name} has not been used in project {world.settings.number} before or it is disabled. If you "
            "enabled this API recently, wait a few minutes for the action to propagate to our systems and "
            "retry."
        )
        raise ApiError(403, "accessNotConfigured", message)


GCLOUD = "764086051850"
"""The number of gcloud's own project, to which its users' credentials belong."""


def require_payer(world: World, request: Request) -> None:
    """A person's credentials need a project for which a request of such an API counts; gcloud's own has none
    of these APIs (terraform-provider-google#1538, google-auth-library-nodejs#1459).
    """
    if "Authorization" not in request.headers:
        return
    payer = request.headers.get("X-Goog-User-Project", "")
    if not payer:
        message = (
            "Your application is authenticating by using local Application Default Credentials. The API "
            "requires a quota project, which is not set by default."
        )
        why = error_info("SERVICE_DISABLED", consumer=f"projects/{GCLOUD}")
        raise ApiError(403, "forbidden", message, details=[why])
    if payer != world.settings.project:
        message = f"Caller does not have required permission to use project {payer}."
        why = error_info("USER_PROJECT_DENIED", consumer=f"projects/{payer}")
        raise ApiError(403, "forbidden", message, details=[why])


def effective_policy(world: World, body: object) -> Json:
    """The answer of projects.getEffectiveOrgPolicy; who may not see policies is refused as by Google."""
    constraint = body.get("constraint", "") if isinstance(body, dict) else ""
    if not isinstance(constraint, str) or not constraint.startswith("constraints/"):
        raise ApiError(400, "badRequest", "Invalid JSON payload received: constraint must name one.")
    if "orgpolicy.policy.get" in world.settings.denied:
        raise ApiError(403, "forbidden", "The caller does not have permission")
    return {"constraint": constraint, **world.settings.policies.get(constraint.partition("/")[2], {})}
