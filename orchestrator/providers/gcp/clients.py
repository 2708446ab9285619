"""Google's API clients with their endpoint, account and project; imported when first used."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from orchestrator.catalog import google_login
from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.clock import http_time

ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"
_NO_CREDENTIALS = "CLOUDSDK_AUTH_DISABLE_CREDENTIALS"
_PROJECT_NAMES = ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT", "GCLOUD_PROJECT")


def endpoint_of(environ: Mapping[str, str], variable: str = ENDPOINT) -> str | None:
    """Return the base URL in `variable` of an endpoint other than Google's public one, without /compute/v1;
    else None.

    gcloud's variable contains the path of the API (…/compute/v1/); the client library adds it by itself.
    """
    given = environ.get(variable, "").strip()
    if not given:
        return None
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _unusable(variable, given, "it is not a URL that begins with http:// or https://")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise _unusable(variable, given, "credentials are never sent unencrypted to another computer")
    path = parts.path.rstrip("/")
    for suffix in ("/projects", "/v1", "/compute"):
        path = path.removesuffix(suffix)
    if path.rpartition("/")[2] in ("beta", "alpha", "v1beta1"):
        raise _unusable(variable, given, "orch supports only version v1 of the API")
    return f"{parts.scheme}://{parts.netloc}{path}"


def is_anonymous(environ: Mapping[str, str]) -> bool:
    """Return whether no login is needed: if gcloud is configured so, else for a local emulator."""
    told = environ.get(_NO_CREDENTIALS, "").strip().lower()
    if told:
        return told in ("1", "true", "yes", "on")
    endpoint = endpoint_of(environ)
    return endpoint is not None and endpoint.startswith("http://")


def project_in(environ: Mapping[str, str]) -> str:
    """Return the project that the environment names; "" if it names none."""
    return next((environ[name].strip() for name in _PROJECT_NAMES if environ.get(name, "").strip()), "")


def no_project() -> ProviderError:
    return ProviderError(
        Fault.INVALID,
        "No Google Cloud project is set: neither by GOOGLE_CLOUD_PROJECT or CLOUDSDK_CORE_PROJECT, nor by "
        "the credentials.",
        code="NoProject",
        next_command="export GOOGLE_CLOUD_PROJECT=PROJECT    # PROJECT: the id of yours",
    )


class Clients:
    """The clients of one environment, each created at its first use, all with one endpoint."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self.told_at: datetime | None = None
        """The time of Google's last answer, by its clock; None if unknown."""

    @functools.cached_property
    def compute(self) -> Any:
        """Import and return the compute library, which takes seconds."""
        try:
            from google.cloud import compute_v1
        except ImportError as error:
            raise ProviderError(
                Fault.INVALID,
                "Google's client library is not installed.",
                code="NoLibrary",
                next_command="pip install 'orch-train[gcp]'",
            ) from error
        return compute_v1

    @functools.cached_property
    def project(self) -> str:
        """Return the project. Raises ProviderError(INVALID) if none is configured."""
        found = project_in(self._environ) or ("" if self._anonymous else self._default[1])
        if not found:
            raise no_project()
        return found

    @functools.cached_property
    def credentials(self) -> Any:
        if self._anonymous:
            from google.auth.credentials import AnonymousCredentials

            return AnonymousCredentials()
        return self._default[0]

    @property
    def identity(self) -> str:
        """Return the account of the credentials in words, as far as it is known without a request."""
        if self._anonymous:
            return "nobody (anonymous)"
        return self.account or "the application-default credentials"

    @property
    def account(self) -> str:
        """Return the account's address; "" if it is not known without a request."""
        if self._anonymous:
            return ""
        named = (getattr(self.credentials, name, "") for name in ("service_account_email", "account"))
        return next((str(name) for name in named if name and name != "default"), "")

    @functools.cached_property
    def instances(self) -> Any:
        return self._client("InstancesClient")

    @functools.cached_property
    def operations(self) -> Any:
        return self._client("ZoneOperationsClient")

    @functools.cached_property
    def firewalls(self) -> Any:
        return self._client("FirewallsClient")

    @functools.cached_property
    def project_operations(self) -> Any:
        return self._client("GlobalOperationsClient")

    @functools.cached_property
    def resource_policies(self) -> Any:
        return self._client("ResourcePoliciesClient")

    @functools.cached_property
    def region_operations(self) -> Any:
        return self._client("RegionOperationsClient")

    @functools.cached_property
    def images(self) -> Any:
        return self._client("ImagesClient")

    @functools.cached_property
    def zones(self) -> Any:
        return self._client("ZonesClient")

    @functools.cached_property
    def regions(self) -> Any:
        return self._client("RegionsClient")

    @functools.cached_property
    def machine_types(self) -> Any:
        return self._client("MachineTypesClient")

    @functools.cached_property
    def accelerator_types(self) -> Any:
        return self._client("AcceleratorTypesClient")

    @functools.cached_property
    def _anonymous(self) -> bool:
        return is_anonymous(self._environ)

    @functools.cached_property
    def _default(self) -> tuple[Any, str]:
        return google_login.default()

    def _client(self, name: str) -> Any:
        from google.api_core.client_options import ClientOptions

        compute = self.compute
        options = ClientOptions(api_endpoint=endpoint_of(self._environ))
        client = getattr(compute, name)(credentials=self.credentials, client_options=options)
        session = getattr(client.transport, "_session", None)  # the library does not pass the headers on
        if session is not None:
            session.hooks["response"].append(self._note_time)
        return client

    def _note_time(self, response: Any, *_: Any, **__: Any) -> None:
        self.told_at = http_time(response.headers.get("Date"))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _unusable(variable: str, given: str, why: str) -> ProviderError:
    return ProviderError(
        Fault.INVALID,
        f"{variable} is {given!r}, which cannot be used: {why}.",
        code="Endpoint",
        next_command=f"unset {variable}",
    )
