"""Check whether Google would create a machine for this user now, and what is missing. Reads only."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from importlib.metadata import version

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Check, CheckState, Offer, Readiness, Topic, Wanted
from orchestrator.model.checks import missing, ok, unknown
from orchestrator.providers.gcp import readiness_access as access
from orchestrator.providers.gcp import readiness_login as login
from orchestrator.providers.gcp import readiness_place as place
from orchestrator.providers.gcp import readiness_policies as policies
from orchestrator.providers.gcp.faults import Refusal
from orchestrator.providers.gcp.readiness_calls import ENDPOINTS, Questions
from orchestrator.providers.gcp.refusing import understood
from orchestrator.providers.gcp.request import Setting
from orchestrator.providers.permissions import COMPUTE

_LOGIN = "gcloud auth application-default login"


def examine(wanted: Wanted, environ: Mapping[str, str] = os.environ) -> Readiness:
    """Run every check that is possible; a check that needs something missing is left out.

    Raises ProviderError(INVALID) for an ORCH_GCP_… variable with an invalid value.
    """
    if not _is_installed():
        absent = missing(
            Topic.SDK, "google-cloud-compute", "It is not installed here.", "pip install 'orch-train[gcp]'"
        )
        return _readiness(wanted, (absent,))
    questions = Questions(environ)
    endpoints = {name: environ[name] for name in ENDPOINTS if environ.get(name, "").strip()}
    begun = (
        ok(Topic.SDK, "google-cloud-compute", version("google-cloud-compute")),
        *(ok(Topic.ENDPOINT, name, url) for name, url in endpoints.items()),
        *_credentials(questions),
    )
    if any(check.state == "missing" for check in begun):
        return _readiness(wanted, begun, endpoints=endpoints)
    setting = Setting.of(questions.project, environ)
    facts = questions.project_facts()
    refusal = facts if isinstance(facts, Refusal) else None
    if refusal and refusal.status == 404:
        absent = missing(
            Topic.CREDENTIALS, "project", f"There is no project {setting.project}.", "gcloud projects list"
        )
        return _readiness(wanted, (*begun, absent), questions, endpoints=endpoints)
    enabled = access.api(COMPUTE, refusal, setting.project)
    begun = (*begun, enabled, *access.look(questions, environ, _machine(wanted)))
    lost = access.lacking(begun)
    grant = access.grant(lost, setting.project, questions.identity) if lost else None
    if enabled.state != "ok":
        return _readiness(wanted, begun, questions, endpoints=endpoints, grant=grant)
    region, offers = _chosen(wanted)
    there, sold = place.region(questions, region, offers)
    tunnel = environ.get("ORCH_GCP_INTERNAL") == "iap"
    site = place.Site(questions, setting, region, sold, wanted.disk, wanted.image, tunnel)
    found: tuple[Check, ...] = (there,)
    if there.state != "missing":
        found = (*found, *place.network(site))
    if sold:
        found = (*found, place.image(site), *place.quotas(site, facts))
    return _readiness(
        wanted,
        (*begun, *found),
        questions,
        region=region,
        offer=sold[0] if sold else None,
        endpoints=endpoints,
        grant=grant,
    )


def before_up(wanted: Wanted, environ: Mapping[str, str] = os.environ) -> tuple[Check, ...]:
    """Check what would stop `up` at its first offer: credentials, API, network, policies, quota."""
    questions = Questions(environ, patience_s=0.0)
    nobody = tuple(check for check in _credentials(questions) if check.state is CheckState.MISSING)
    if nobody:
        return nobody
    setting = Setting.of(questions.project, environ)
    facts = questions.project_facts()
    enabled = access.api(COMPUTE, facts if isinstance(facts, Refusal) else None, setting.project)
    if enabled.state != "ok":
        return (enabled,)
    first = wanted.offers[0]
    tunnel = environ.get("ORCH_GCP_INTERNAL") == "iap"
    site = place.Site(questions, setting, first.region, (first,), wanted.disk, wanted.image, tunnel)
    told = policies.answers(questions, environ)
    governed = (
        *policies.judged(told, setting.project, _machine(wanted)),
        *login.checks(questions, told, setting),
    )
    return (*governed, *place.network(site), *place.quotas(site, facts))


def _machine(wanted: Wanted) -> policies.Machine | None:
    """Return the machine that `up` would create first."""
    _, offers = _chosen(wanted)
    return policies.Machine.of(offers[0], wanted.image) if offers else None


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("google.cloud.compute_v1") is not None
    except ModuleNotFoundError:
        return False


def _chosen(wanted: Wanted) -> tuple[str, tuple[Offer, ...]]:
    """Return the region, and the offers there that `up` would try first: one type, in each recorded zone."""
    here = [offer for offer in wanted.offers if wanted.region in (None, offer.region)]
    if not here:
        return wanted.region or "us-central1", ()
    first = here[0]
    same = (o for o in here if (o.region, o.instance_type) == (first.region, first.instance_type))
    return first.region, tuple(same)


def _credentials(questions: Questions) -> tuple[Check, ...]:
    """Check whether credentials exist, whether Google accepts them, and which project is used."""
    try:
        project = questions.project
    except ProviderError as error:
        nobody = missing(Topic.CREDENTIALS, "project", error.message, error.next_command)
        return (*_login(questions), nobody)
    except Exception as error:
        return (_no_login(error),)
    return (*_login(questions), ok(Topic.CREDENTIALS, "project", project))


def _login(questions: Questions) -> tuple[Check, ...]:
    from google.auth.credentials import AnonymousCredentials
    from google.auth.transport.requests import Request

    try:
        credentials = questions.credentials
        if not isinstance(credentials, AnonymousCredentials):
            credentials.refresh(Request())
    except Exception as error:
        return (_no_login(error),)
    return (ok(Topic.CREDENTIALS, "credentials", questions.identity),)


def _no_login(error: Exception) -> Check:
    """Return the check for missing credentials. Raises `error` if it is not one of Google's libraries."""
    refusal = understood(error)
    if refusal is None:
        raise error
    detail = refusal.words.splitlines()[0]
    if refusal.fault is Fault.AUTH:
        return missing(Topic.CREDENTIALS, "credentials", detail, _LOGIN)
    return unknown(Topic.CREDENTIALS, "credentials", f"Google did not answer: {detail}")


def _readiness(
    wanted: Wanted,
    checks: tuple[Check, ...],
    questions: Questions | None = None,
    *,
    region: str = "",
    offer: Offer | None = None,
    endpoints: Mapping[str, str] | None = None,
    grant: str | None = None,
) -> Readiness:
    order = list(Topic)
    return Readiness(
        "gcp",
        questions.identity if questions else "",
        questions.project if questions else "",
        region or wanted.region or "",
        offer,
        tuple(sorted(checks, key=lambda check: order.index(check.topic))),
        endpoints or {},
        grant,
    )
