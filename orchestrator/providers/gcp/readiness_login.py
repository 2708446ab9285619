"""Check OS Login where an organisation requires it: the account, the API and the role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.model import Check, Topic
from orchestrator.model.checks import missing, ok, unknown
from orchestrator.providers.gcp.faults import Refusal
from orchestrator.providers.gcp.os_login import API, PERMISSIONS, POLICY, ROLE, is_enforced, nobody
from orchestrator.providers.gcp.readiness_calls import Json, Questions
from orchestrator.providers.gcp.request import Setting

_NAME = "OS Login"


def checks(questions: Questions, policies: Mapping[str, Json | Refusal], setting: Setting) -> Iterator[Check]:
    """Return the checks of OS Login; none if machines use instance metadata for the key."""
    policy = policies[POLICY]
    enforced = not isinstance(policy, Refusal) and is_enforced(policy)
    if enforced and setting.os_login is False:
        detail = "The organisation requires OS Login, but ORCH_GCP_OS_LOGIN=0 disables it."
        yield missing(Topic.POLICY, POLICY, detail, "unset ORCH_GCP_OS_LOGIN")
    elif enforced or setting.os_login:
        yield from _way_in(questions)


def _way_in(questions: Questions) -> Iterator[Check]:
    address = questions.address()
    if not address:
        error = nobody()
        yield missing(Topic.POLICY, _NAME, error.message, error.next_command)
        return
    yield _profile(questions, address)
    yield _role(questions, address)


def _profile(questions: Questions, address: str) -> Check:
    answer = questions.login_profile(address)
    if not isinstance(answer, Refusal):
        return ok(Topic.POLICY, _NAME, f"the lease's key goes into the login profile of {address}")
    if answer.is_disabled_api:
        remedy = f"orch setup gcp    # or: gcloud services enable {API} --project={questions.project}"
        return missing(Topic.API, API, f"The API {API} is not enabled, and the policy {POLICY} is.", remedy)
    detail = f"The login profile of {address} could not be read: {answer.words}"
    return missing(Topic.POLICY, _NAME, detail, "gcloud compute os-login describe-profile")


def _role(questions: Questions, address: str) -> Check:
    answer = questions.granted(PERMISSIONS)
    if isinstance(answer, Refusal):
        return unknown(Topic.PERMISSION, PERMISSIONS[0], f"it could not be read: {answer.words}")
    held = [name for name in PERMISSIONS if name in answer.get("permissions", ())]
    if held:
        return ok(Topic.PERMISSION, held[0], "log in where OS Login is demanded")
    kind = "serviceAccount" if address.endswith(".gserviceaccount.com") else "user"
    remedy = (
        f"gcloud projects add-iam-policy-binding {questions.project} --member={kind}:{address} --role={ROLE}"
    )
    return missing(Topic.PERMISSION, PERMISSIONS[0], "log in where OS Login is demanded", remedy)
