"""Check whether AWS would create a machine for this user now, and what is missing. Only reads and dry
runs.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Check, CheckState, Offer, Readiness, Topic, Wanted
from orchestrator.model.backoff import Patience
from orchestrator.model.checks import missing, ok, unknown
from orchestrator.providers.aws import freeplan
from orchestrator.providers.aws import readiness_access as access
from orchestrator.providers.aws import readiness_place as place
from orchestrator.providers.aws.clients import HOME, Clients, asking
from orchestrator.providers.aws.faults import classify, code_of, text_of
from orchestrator.providers.aws.readiness_simulation import Caller
from orchestrator.providers.aws.settings import Settings, read
from orchestrator.providers.aws.zones import with_zones

_SERVICES = ("ec2", "ssm", "sts", "service-quotas", "iam", "pricing")
_LOGIN = "aws configure    # or: aws sso login"


@dataclass(frozen=True)
class Identity:
    """The caller's ARN and account."""

    arn: str
    account: str


def examine(wanted: Wanted, environ: Mapping[str, str] = os.environ) -> Readiness:
    """Run every check that is possible; a check that needs something missing is left out.

    Raises ProviderError(INVALID) for an ORCH_AWS_… variable with an invalid value.
    """
    settings = read(environ)
    if importlib.util.find_spec("boto3") is None:
        absent = missing(Topic.SDK, "boto3", "boto3 is not installed here.", "pip install 'orch-train[aws]'")
        return _readiness(wanted, (absent,))
    sdk = ok(Topic.SDK, "boto3", version("boto3"))
    clients = _PatientClients(settings, lambda: tuple(sorted({offer.region for offer in wanted.offers})))
    credentials, identity = _credentials(clients)
    if identity is None:
        return _readiness(wanted, (sdk, credentials))
    endpoints = _endpoints(clients)
    region, offers = _chosen(clients, wanted)
    enabled = _left_out(settings, region) or _region(clients, region)
    begun = (sdk, *_told(endpoints), credentials, enabled)
    if enabled.state != "ok":
        return _readiness(wanted, begun, identity, region, endpoints=endpoints)
    direct = environ.get("ORCH_AWS_ADDRESS") != "ssm"
    site = place.Site(clients, settings, region, offers, wanted.disk, wanted.image, direct)
    found = place.look(site)
    allowed = access.look(
        Caller(clients, region, identity.arn, identity.account),
        access.Situation(found.request, whole=found.whole, offer=found.offer, environ=environ),
    )
    refused = access.lacking(allowed)
    return _readiness(
        wanted,
        (*begun, *allowed, *found.checks, *_plan(site), *place.quota(site)),
        identity,
        region,
        offer=found.offer,
        endpoints=endpoints,
        grant=access.grant(refused, identity.arn) if refused else None,
    )


def before_up(wanted: Wanted, environ: Mapping[str, str] = os.environ) -> tuple[Check, ...]:
    """Check what would stop `up` at its first offer: credentials, network, account plan, quota."""
    settings = read(environ)
    first = wanted.offers[0]
    same = [o for o in wanted.offers if (o.region, o.instance_type) == (first.region, first.instance_type)]
    clients = Clients(settings, lambda: (first.region,))
    credentials, _ = _credentials(clients)
    if (credentials.topic, credentials.state) == (Topic.CREDENTIALS, CheckState.MISSING):
        return (credentials,)
    direct = environ.get("ORCH_AWS_ADDRESS") != "ssm"
    site = place.Site(clients, settings, first.region, tuple(same), wanted.disk, wanted.image, direct)
    return (*place.before_up(site), *_plan(site), *place.quota(site))


def _plan(site: place.Site) -> tuple[Check, ...]:
    return (freeplan.check(site.clients, site.offers[0].instance_type),) if site.offers else ()


class _PatientClients(Clients):
    """Clients that repeat requests after transient errors."""

    def __init__(self, settings: Settings, regions: Callable[[], tuple[str, ...]]) -> None:
        super().__init__(settings, regions)
        self._patience = Patience(lambda error: classify(error) is Fault.TRANSIENT)

    def client(self, service: str, region: str) -> Any:
        return self._patience.client(super().client(service, region))


def _readiness(
    wanted: Wanted,
    checks: tuple[Check, ...],
    identity: Identity | None = None,
    region: str = "",
    *,
    offer: Offer | None = None,
    endpoints: Mapping[str, str] | None = None,
    grant: str | None = None,
) -> Readiness:
    order = list(Topic)
    return Readiness(
        "aws",
        identity.arn if identity else "",
        identity.account if identity else "",
        region or wanted.region or "",
        offer,
        tuple(sorted(checks, key=lambda check: order.index(check.topic))),
        endpoints or {},
        grant,
    )


# ---------------------------------------------------------------- credentials, endpoints


def _credentials(clients: Clients) -> tuple[Check, Identity | None]:
    from botocore.exceptions import BotoCoreError

    name = "credentials"
    try:
        home = clients.home
        with asking(clients, home):
            answer = clients.client("sts", home).get_caller_identity()
    except BotoCoreError as error:  # an unknown profile in AWS_PROFILE, or an unreadable file
        return missing(Topic.CREDENTIALS, name, str(error), "unset AWS_PROFILE    # or: aws configure"), None
    except ProviderError as error:
        if error.fault is Fault.AUTH:
            return missing(Topic.CREDENTIALS, name, _unusable(error), _LOGIN), None
        detail = f"{error.message.rstrip('.')}. Check the network connection and the endpoint."
        return missing(Topic.ENDPOINT, "sts", detail, error.next_command), None
    identity = Identity(str(answer["Arn"]), str(answer["Account"]))
    return ok(Topic.CREDENTIALS, name, f"{identity.arn} ({_source()})"), identity


def _unusable(error: ProviderError) -> str:
    cause = error.__cause__ or error
    return f"There are no credentials that AWS accepts: {text_of(cause).rstrip('.')} ({code_of(cause)})."


def _source() -> str:
    """Return where boto3 found the credentials: env, shared-credentials-file, sso, iam-role, …"""
    import boto3

    found = boto3.Session().get_credentials()
    return f"found by: {found.method}" if found else "not found"


def _endpoints(clients: Clients) -> dict[str, str]:
    """Return the services whose endpoint is not the one of Amazon."""
    addresses = {name: str(clients.client(name, clients.home).meta.endpoint_url) for name in _SERVICES}
    own = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
    return {name: url for name, url in addresses.items() if not url.rstrip("/").endswith(own)}


def _told(endpoints: Mapping[str, str]) -> tuple[Check, ...]:
    """Return one check for each address in `endpoints`, with the services that share it."""
    shared: dict[str, list[str]] = {}
    for name, url in endpoints.items():
        shared.setdefault(url, []).append(name)
    return tuple(
        ok(Topic.ENDPOINT, "elsewhere", f"{', '.join(names)} are called at {url}, not at Amazon's address")
        for url, names in shared.items()
    )


# ---------------------------------------------------------------- region


def _chosen(clients: Clients, wanted: Wanted) -> tuple[str, tuple[Offer, ...]]:
    """Return the region, and the offers there that `up` would try first: one type, in each zone that has
    it.
    """
    regions: tuple[str, ...] = (wanted.region,) if wanted.region else _in_use(clients)
    here = [offer for offer in wanted.offers if offer.region in regions]
    if not here:
        return regions[0], ()
    first = here[0]
    same = [o for o in here if (o.region, o.instance_type) == (first.region, first.instance_type)]
    try:
        placed = with_zones(clients, same)
    except ProviderError:
        placed = same
    return first.region, tuple(placed)


def _in_use(clients: Clients) -> tuple[str, ...]:
    try:
        return clients.regions
    except ProviderError:
        return (clients.home,)


def _left_out(settings: Settings, region: str) -> Check | None:
    """Check that the region is in ORCH_AWS_REGIONS if that is set: `up` creates nothing elsewhere."""
    if not settings.regions or region in settings.regions:
        return None
    detail = f"ORCH_AWS_REGIONS does not include it; it has {', '.join(settings.regions)}."
    return missing(
        Topic.REGION, region, detail, f"export ORCH_AWS_REGIONS={','.join((*settings.regions, region))}"
    )


def _region(clients: Clients, region: str) -> Check:
    """Check that the region exists and is enabled. For an unknown region, another region is asked, because
    the unknown one may have no address.
    """
    known = _known_regions()
    asked = region if region in known else HOME
    try:
        with asking(clients, asked):
            answer = clients.ec2(asked).describe_regions(AllRegions=True)
    except ProviderError as error:
        return _unasked(region, error)
    states = {found["RegionName"]: found.get("OptInStatus", "") for found in answer.get("Regions", ())}
    if region not in states:
        (near,) = difflib.get_close_matches(region, sorted(states), 1, 0) or (HOME,)
        there = [name for name in sorted(states) if name[:2] == region[:2]] or sorted(states)
        detail = f"There is no region {region}. There are {', '.join(there)}."
        return missing(Topic.REGION, region, detail, f"--region {near}    # or AWS_REGION, or the profile's")
    if states[region] == "not-opted-in":
        enable = f"aws account enable-region --region-name {region}"
        return missing(Topic.REGION, region, "The account has not enabled this region.", enable)
    return ok(Topic.REGION, region, "enabled")


def _unasked(region: str, error: ProviderError) -> Check:
    if error.fault is Fault.AUTH and error.code in ("UnauthorizedOperation", "AccessDenied"):
        # It answers, so the other checks may still work; the missing permission has a line of its own.
        return ok(Topic.REGION, region, "answers; whether it is enabled is not known")
    if error.fault is Fault.AUTH:
        enable = f"aws account enable-region --region-name {region}"
        return missing(Topic.REGION, region, f"{error.message} It may not be enabled.", enable)
    return unknown(Topic.REGION, region, error.message)


def _known_regions() -> set[str]:
    import boto3

    session = boto3.Session()
    partitions = session.get_available_partitions()
    return {name for each in partitions for name in session.get_available_regions("ec2", each)}
