"""Build a catalog from Compute Engine and Cloud Billing. The parsers are pure; only `ask` uses a network."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from orchestrator.catalog import google_login
from orchestrator.catalog.google_prices import Part, parse_skus
from orchestrator.catalog.names import GIB, accelerator_name
from orchestrator.catalog.rows import ATTACHABLE, Attachable, Catalog, Sale, Told
from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Offer

_MIB = 1 << 20
_SSD_GB = 375
_SHARED_CORES = {"e2-micro": 0.25, "e2-small": 0.5, "e2-medium": 1.0}
"""The share of a core for which shared-core types are billed."""
_BILLED_AS = {"a3-megagpu": "a3plus", "a3-ultragpu": "a3ultra"}
_COMPUTE = ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://compute.googleapis.com", "compute/v1")
_BILLING = ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING", "https://cloudbilling.googleapis.com", "v1")
_SKUS = "services/6F81-5844-456A/skus"
SOURCES = ("Compute Engine machineTypes and acceleratorTypes; Cloud Billing SKUs of Compute Engine",)
NOTES = ("Network and the memory of GPUs are as shipped: no API states them.",)


# ---------------------------------------------------------------- asking


def renew(known: Catalog, region: str | None, now: datetime) -> Told:  # noqa: ARG001 (prices are of now)
    """Return what `region`, or without one every region, sells now. Raises ProviderError."""
    kinds, sales, attachable = ask(known, region)
    return Told(kinds, sales, SOURCES, NOTES, attachable, everything=region is None)


def ask(
    known: Catalog, region: str | None, environ: Mapping[str, str] = os.environ
) -> tuple[list[Offer], dict[str, list[Sale]], tuple[Attachable, ...]]:
    """Return kinds of machines, sales by type, and attachable GPUs; of one region or of all. Raises
    ProviderError.

    Endpoints: the gcloud variables above. `known` supplies what no API states.
    """
    session, project = _session(environ)
    listing = f"{_base(_COMPUTE, environ)}/projects/{project}/aggregated/"
    machines = list(_items(_pages(session, listing + "machineTypes", maxResults=500), "machineTypes"))
    gpus = list(_items(_pages(session, listing + "acceleratorTypes", maxResults=500), "acceleratorTypes"))
    pages = _pages(session, f"{_base(_BILLING, environ)}/{_SKUS}", pageSize=5000, currencyCode="USD")
    prices = parse_skus(sku for page in pages for sku in page.get("skus", ()))
    kinds, sales = parse_machines(machines, prices, known, region)
    return kinds, sales, parse_accelerators(gpus, prices, known, region)


def _session(environ: Mapping[str, str]) -> tuple[Any, str]:
    """Return an authorised session and its project."""
    try:
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.transport.requests import AuthorizedSession
    except ImportError as error:
        raise ProviderError(
            Fault.INVALID,
            "Google's client library is not installed.",
            code="NoLibrary",
            next_command="pip install 'orch-train[gcp]'",
        ) from error
    named = next((environ[name] for name in _PROJECT if environ.get(name)), "")
    if _anonymous(environ):
        return AuthorizedSession(AnonymousCredentials()), named
    try:
        credentials, project = google_login.default()
    except google.auth.exceptions.GoogleAuthError as error:
        raise _refused(Fault.AUTH, type(error).__name__, str(error)) from error
    if not (named or project):
        raise _refused(Fault.INVALID, "NoProject", "no project: set GOOGLE_CLOUD_PROJECT")
    return AuthorizedSession(google_login.counted_for(named or project, credentials)), named or project


_PROJECT = ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT", "GCLOUD_PROJECT")


def _anonymous(environ: Mapping[str, str]) -> bool:
    """Return whether no login is needed: if gcloud is configured so, else for a local emulator."""
    told = environ.get("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "").strip().lower()
    return told in ("1", "true", "yes", "on") if told else environ.get(_COMPUTE[0], "").startswith("http://")


def _base(api: tuple[str, str, str], environ: Mapping[str, str]) -> str:
    """Return the API's URL up to its version; gcloud's variable may contain that path or not."""
    variable, public, path = api
    given = environ.get(variable, "").strip() or public
    parts = urlsplit(given)
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        text = f"{variable} is {given!r}; it must begin with https://, or with http:// on this computer"
        raise _refused(Fault.INVALID, "Endpoint", text)
    before = parts.path.strip("/").removesuffix(path).strip("/")
    return "/".join(part for part in (f"{parts.scheme}://{parts.netloc}", before, path) if part)


def _pages(session: Any, url: str, **query: Any) -> Iterator[Mapping[str, Any]]:
    token = ""
    while True:
        answer = _get(session, url, {**query, **({"pageToken": token} if token else {})})
        yield answer
        token = answer.get("nextPageToken", "")
        if not token:
            return


def _get(session: Any, url: str, query: Mapping[str, Any]) -> Mapping[str, Any]:
    from google.auth.exceptions import GoogleAuthError
    from requests import RequestException

    try:
        answer = session.get(url, params=query, timeout=60)
    except GoogleAuthError as error:
        raise _refused(Fault.AUTH, type(error).__name__, str(error)) from error
    except RequestException as error:
        raise _refused(Fault.TRANSIENT, type(error).__name__, str(error)) from error
    status = answer.status_code
    if status != 200:
        fault = Fault.AUTH if status in (401, 403) else Fault.TRANSIENT if status >= 429 else Fault.INVALID
        raise _refused(fault, str(status), f"{url} answered {status}: {answer.text[:300]}")
    found: Mapping[str, Any] = answer.json()
    return found


def _refused(fault: Fault, code: str, why: str) -> ProviderError:
    return ProviderError(
        fault,
        f"Google did not say what it sells: {why.rstrip('.')}.",
        code=code,
        exists="The catalog is as it was.",
        next_command="orch doctor gcp" if fault is Fault.AUTH else "orch catalog refresh gcp",
    )


# ---------------------------------------------------------------- reading the answers


def _items(pages: Iterable[Mapping[str, Any]], noun: str) -> Iterator[Mapping[str, Any]]:
    """Return the items of an aggregated list, each with the name of its `zone`. Zones without items hold only
    a warning.
    """
    for page in pages:
        for scope, found in page.get("items", {}).items():
            for item in found.get(noun, ()):
                yield {**item, "zone": scope.removeprefix("zones/")}


def parse_machines(
    machines: Iterable[Mapping[str, Any]], prices: Mapping[Part, float], known: Catalog, region: str | None
) -> tuple[list[Offer], dict[str, list[Sale]]]:
    """Parse machineTypes: kinds, and for each its regions with zones and prices; NaN if the price of a part
    is unknown.
    """
    shipped = {kind.instance_type: kind for kind in known.kinds}
    memories = {kind.accelerator: kind.gpu_memory for kind in known.kinds if kind.accelerator_count}
    kinds: dict[str, Offer] = {}
    zones: dict[tuple[str, str], list[str]] = defaultdict(list)
    for item in machines:
        where = item["zone"].rpartition("-")[0]
        if region in (None, where) and item.get("deprecated", {}).get("state") not in ("OBSOLETE", "DELETED"):
            kinds.setdefault(item["name"], _kind(item, shipped.get(item["name"]), memories))
            zones[item["name"], where].append(item["zone"])
    sales: dict[str, list[Sale]] = defaultdict(list)
    for (name, where), found in sorted(zones.items()):
        price, spot = (_price(kinds[name], where, prices, rented) for rented in (False, True))
        sales[name].append(Sale(where, tuple(sorted(found)), price, spot))
    return list(kinds.values()), sales


def _kind(item: Mapping[str, Any], shipped: Offer | None, memories: Mapping[str | None, int]) -> Offer:
    gpu: Mapping[str, Any] = next(iter(item.get("accelerators", ())), {})
    name = accelerator_name(gpu["guestAcceleratorType"], 0) if gpu else None
    disks = int(item.get("bundledLocalSsds", {}).get("partitionCount", 0))
    return Offer(
        "gcp",
        item["name"],
        region="",
        zone="",
        cpus=item["guestCpus"],
        memory=item["memoryMb"] * _MIB,
        arch="arm64" if item.get("architecture") == "ARM64" else "x86_64",
        price=0.0,
        accelerator=name,
        accelerator_count=gpu.get("guestAcceleratorCount", 0),
        gpu_memory=memories.get(name, 0),
        vendor="nvidia" if gpu and gpu["guestAcceleratorType"].startswith("nvidia") else "",
        local_ssd=disks * _SSD_GB * 10**9 or (shipped.local_ssd if shipped else 0),
        network=shipped.network if shipped else 0.0,
    )


def _price(kind: Offer, region: str, prices: Mapping[Part, float], spot: bool) -> float:
    """Return the sum of the prices of a machine's parts; NaN if one is unknown."""

    def of(what: str, family: str) -> float:
        return prices.get(Part(what, family, region, spot), math.nan)

    series = kind.instance_type.partition("-")[0]
    family = _BILLED_AS.get("-".join(kind.instance_type.split("-")[:2]), series)
    cores = _SHARED_CORES.get(kind.instance_type, float(kind.cpus))
    total = cores * of("core", family) + kind.memory / GIB * of("ram", family)
    if kind.accelerator:
        total += kind.accelerator_count * of("gpu", kind.accelerator)
    if kind.local_ssd:
        total += kind.local_ssd / 10**9 * of("disk", "")
    return round(total, 6) if math.isfinite(total) else math.nan


def parse_accelerators(
    items: Iterable[Mapping[str, Any]], prices: Mapping[Part, float], known: Catalog, region: str | None
) -> tuple[Attachable, ...]:
    """Parse acceleratorTypes: those that can be attached to n1 machines, with the price of one by region."""
    memories = {gpu.name: gpu.memory for gpu in known.attachable}
    zones: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        name = accelerator_name(item["name"], 0)
        where = item["zone"].rpartition("-")[0]
        if name in ATTACHABLE and not item["name"].endswith("-vws") and region in (None, where):
            zones[item["name"], name][where].append(item["zone"])
    return tuple(
        Attachable(attach, name, "nvidia", memories.get(name, 0), _gpu_sales(name, found, prices))
        for (attach, name), found in sorted(zones.items())
    )


def _gpu_sales(name: str, zones: Mapping[str, Sequence[str]], prices: Mapping[Part, float]) -> list[Sale]:
    return [
        Sale(
            where,
            tuple(sorted(found)),
            prices.get(Part("gpu", name, where, False), math.nan),
            prices.get(Part("gpu", name, where, True), math.nan),
        )
        for where, found in sorted(zones.items())
    ]
