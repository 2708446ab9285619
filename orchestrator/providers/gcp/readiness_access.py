"""Check which APIs are enabled, which permissions the caller has, and what the organisation's policies
forbid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Check, Topic
from orchestrator.model.checks import missing, ok, unknown
from orchestrator.providers import permissions
from orchestrator.providers.gcp import readiness_login as login
from orchestrator.providers.gcp import readiness_policies as policies
from orchestrator.providers.gcp.calls import Calls
from orchestrator.providers.gcp.faults import Refusal
from orchestrator.providers.gcp.readiness_calls import Questions
from orchestrator.providers.gcp.refusing import pay_for
from orchestrator.providers.gcp.request import Setting
from orchestrator.providers.permissions import BILLING, RESOURCE_MANAGER, Permission
from orchestrator.providers.permissions.gcp import OWN_IMAGE

_POLICY = "orgpolicy.policy.get"


def api(name: str, refusal: Refusal | None, project: str) -> Check:
    """Return the check of whether an API is enabled. `refusal`: of one of its calls, None if it answered."""
    if refusal is not None and refusal.is_disabled_api:
        enable = f"gcloud services enable {name} --project={project}"
        return missing(Topic.API, name, f"It is not enabled in the project {project}.", enable)
    if refusal is not None and refusal.is_unbilled:
        return missing(Topic.API, name, f"The project {project} has no billing account.", pay_for(project))
    if refusal is not None and refusal.fault is Fault.TRANSIENT:
        return unknown(Topic.API, name, f"it did not answer: {refusal.words}")
    return ok(Topic.API, name, "enabled" if refusal is None else f"answers ({refusal.code})")


def look(
    questions: Questions, environ: Mapping[str, str], machine: policies.Machine | None
) -> tuple[Check, ...]:
    """Check permissions, APIs and policies. Requests only what is needed."""
    wanted = [one for one in permissions.of("gcp") if _applies(one, environ)]
    asked = [one.name for one in wanted if one.name != _POLICY]
    answer = questions.granted(asked)
    prices = questions.prices()
    governed = policies.answers(questions, environ)
    lost: Refusal | None = None
    if isinstance(answer, Refusal):
        lost, granted = answer, _by_reading(questions)
    else:
        granted = {name: name in answer.get("permissions", ()) for name in asked}
    granted[_POLICY] = not any(isinstance(each, Refusal) for each in governed.values())
    return (
        _manager(lost, questions.project),
        api(BILLING, prices if isinstance(prices, Refusal) else None, questions.project),
        *(_permission(one, granted.get(one.name), questions.project) for one in wanted),
        *policies.judged(governed, questions.project, machine),
        *login.checks(questions, governed, Setting.of(questions.project, environ)),
    )


def lacking(checks: Sequence[Check]) -> list[str]:
    return [check.name for check in checks if check.topic is Topic.PERMISSION and check.state == "missing"]


def grant(lost: Sequence[str], project: str, identity: str) -> str:
    """Return the commands that create a role with these permissions and grant it to the caller."""
    account = identity.endswith(".gserviceaccount.com")
    member = f"serviceAccount:{identity}" if account else f"user:{identity if '@' in identity else 'YOU'}"
    return (
        f"gcloud iam roles create orch_more --project={project} --title=orch --permissions={','.join(lost)}\n"
        f"gcloud projects add-iam-policy-binding {project} --member={member} "
        f"--role=projects/{project}/roles/orch_more"
    )


def _applies(permission: Permission, environ: Mapping[str, str]) -> bool:
    """Return whether a permission must be granted in this project: using public images needs none here."""
    return permission.applies(environ) and permission.when != OWN_IMAGE


def _manager(lost: Refusal | None, project: str) -> Check:
    """Check the Resource Manager API. Without it `doctor` sees less, but machines can be created."""
    if lost is None:
        return ok(Topic.API, RESOURCE_MANAGER, "enabled")
    enable = f"gcloud services enable {RESOURCE_MANAGER} --project={project}"
    what = "it is not enabled, so not every permission can be checked" if lost.is_disabled_api else lost.words
    return unknown(Topic.API, RESOURCE_MANAGER, what, enable if lost.is_disabled_api else None)


# ---------------------------------------------------------------- permissions


def _by_reading(questions: Questions) -> dict[str, bool]:
    """Return the permissions that harmless reads can test, and whether each is granted."""
    calls = Calls(questions)
    reads: Mapping[str, Callable[[], object]] = {
        "compute.instances.list": lambda: next(iter(calls.instances("labels.orch-lease:*")), None),
        "compute.zones.list": calls.zones,
    }
    heard: dict[str, bool] = {}
    for name, read in reads.items():
        try:
            read()
            heard[name] = True
        except ProviderError as error:
            if error.fault is Fault.AUTH:
                heard[name] = False
    others = {
        "compute.projects.get": questions.project_facts(),
        "compute.firewalls.list": questions.firewalls(),
    }
    for name, answer in others.items():
        if not isinstance(answer, Refusal) or answer.fault is Fault.AUTH:
            heard[name] = not isinstance(answer, Refusal)
    return heard


def _permission(permission: Permission, granted: bool | None, project: str) -> Check:
    name, said = permission.name, permission.why
    if granted:
        return ok(Topic.PERMISSION, name, said)
    remedy = f"gcloud iam roles update ROLE --project={project} --add-permissions={name}"
    if granted is None:
        return unknown(
            Topic.PERMISSION, name, f"needed to {said}; checked only with {RESOURCE_MANAGER}", remedy
        )
    if permission.instead:
        return unknown(Topic.PERMISSION, name, f"not granted; without it {permission.instead}", remedy)
    if permission.needed == {"doctor"}:
        return unknown(Topic.PERMISSION, name, f"not granted; only `orch doctor` needs it, to {said}", remedy)
    return missing(Topic.PERMISSION, name, f"not granted in the project; needed to {said}", remedy)
