"""The requests that only `doctor` makes to Google. Each returns plain JSON or a Refusal. Reads only."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from orchestrator.catalog.google_login import counted_for
from orchestrator.errors import Fault
from orchestrator.model.backoff import Patience
from orchestrator.providers.gcp.clients import ENDPOINT, Clients, endpoint_of, is_anonymous
from orchestrator.providers.gcp.faults import Refusal, of_answer
from orchestrator.providers.gcp.refusing import NOT_AN_ANSWER, understood

Json = Mapping[str, Any]
R = TypeVar("R")

_CALL_S = 60.0
_SKUS = "v1/services/6F81-5844-456A/skus"
"""cloudbilling.services.skus.list, of Compute Engine."""
_RESOURCE_MANAGER = (
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER",
    "cloudresourcemanager.googleapis.com",
)
_BILLING = ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING", "cloudbilling.googleapis.com")
_SERVICE_USAGE = ("CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICEUSAGE", "serviceusage.googleapis.com")
_OS_LOGIN = ("CLOUDSDK_API_ENDPOINT_OVERRIDES_OSLOGIN", "oslogin.googleapis.com")
_USER_INFO = "https://openidconnect.googleapis.com/v1/userinfo"
"""The OpenID Connect address that returns the account of a token."""
_COMPUTE = (ENDPOINT, "compute.googleapis.com")
ENDPOINTS = (ENDPOINT, _RESOURCE_MANAGER[0], _BILLING[0], _SERVICE_USAGE[0], _OS_LOGIN[0])
"""Variables that select other endpoints than Google's own."""


class Questions(Clients):
    """The requests for one environment, each repeated after transient errors; nothing is changed."""

    def __init__(self, environ: Mapping[str, str], *, patience_s: float | None = None) -> None:
        super().__init__(environ)
        self._patience_s = patience_s

    @functools.cached_property
    def _patience(self) -> Patience:
        return Patience(_passes) if self._patience_s is None else Patience(_passes, self._patience_s)

    def _client(self, name: str) -> Any:
        return self._patience.client(super()._client(name))

    def project_facts(self) -> Json | Refusal:
        return self._one("compute.projects.get", project=self.project)

    def region(self, name: str) -> Json | Refusal:
        return self._one("compute.regions.get", project=self.project, region=name)

    def network(self, name: str) -> Json | Refusal:
        return self._one("compute.networks.get", project=self.project, network=name)

    def subnetwork(self, project: str, region: str, name: str) -> Json | Refusal:
        return self._one("compute.subnetworks.get", project=project, region=region, subnetwork=name)

    def firewalls(self) -> Sequence[Json] | Refusal:
        """Return every firewall rule of the project, for all networks."""
        return _heard(
            lambda: [_plain(rule) for rule in self._asked("compute.firewalls.list", project=self.project)]
        )

    def granted(self, names: Sequence[str]) -> Json | Refusal:
        """Return {"permissions": [...]}: those of `names` that the caller has in the project."""
        return self._managed("cloudresourcemanager.projects.testIamPermissions", {"permissions": list(names)})

    def policy(self, constraint: str) -> Json | Refusal:
        """Return the effective organisation policy of the project."""
        said = {"constraint": f"constraints/{constraint}"}
        return self._managed("cloudresourcemanager.projects.getEffectiveOrgPolicy", said)

    def prices(self) -> Json | Refusal:
        """Return one price, to see whether prices can be read."""
        return self._rest("GET", f"{self._base(*_BILLING)}/{_SKUS}?pageSize=1", None)

    # ------------------------------------------------------------ OS Login: the caller's own login profile

    def address(self) -> str:
        """Return the address of the calling account; "" if unknown."""
        if self.account:
            return self.account
        told = {} if is_anonymous(self._environ) else self._rest("GET", _USER_INFO, None)
        named = "" if isinstance(told, Refusal) else str(told.get("email", ""))
        return named or self._environ.get("CLOUDSDK_CORE_ACCOUNT", "").strip()

    def login_profile(self, address: str) -> Json | Refusal:
        return self._rest("GET", f"{self._profile(address)}/loginProfile?projectId={self.project}", None)

    def import_key(self, address: str, key: str, region: str, expires: int) -> Json | Refusal:
        """Import an ssh key. `expires`: microseconds since the epoch. Returns once machines of `region`
        know the key.
        """
        url = f"{self._profile(address)}:importSshPublicKey?projectId={self.project}&regions={region}"
        return self._rest("POST", url, {"key": key, "expirationTimeUsec": str(expires)})

    def remove_key(self, address: str, fingerprint: str) -> Json | Refusal:
        return self._rest("DELETE", f"{self._profile(address)}/sshPublicKeys/{quote(fingerprint)}", None)

    def _profile(self, address: str) -> str:
        return f"{self._base(*_OS_LOGIN)}/v1/users/{quote(address, safe='@')}"

    # ------------------------------------------------------------ what `setup` alone asks and changes

    def service(self, name: str) -> Json | Refusal:
        """Return the state of an API: {"state": "ENABLED"}."""
        return self._rest("GET", self._service(name), None)

    def enable(self, name: str) -> Json | Refusal:
        return self._rest("POST", f"{self._service(name)}:enable", {})

    def make_firewall(self, rule: Json) -> Json | Refusal:
        return self._rest("POST", self._firewalls(), rule)

    def change_firewall(self, name: str, changed: Json) -> Json | Refusal:
        return self._rest("PATCH", f"{self._firewalls()}/{name}", changed)

    def remove_firewall(self, name: str) -> Json | Refusal:
        return self._rest("DELETE", f"{self._firewalls()}/{name}", None)

    def _service(self, name: str) -> str:
        return f"{self._base(*_SERVICE_USAGE)}/v1/projects/{self.project}/services/{name}"

    def _firewalls(self) -> str:
        return f"{self._base(*_COMPUTE)}/compute/v1/projects/{self.project}/global/firewalls"

    # ------------------------------------------------------------ inside

    def _one(self, call: str, **wanted: str) -> Json | Refusal:
        return _heard(lambda: _plain(self._asked(call, **wanted)))

    def _asked(self, call: str, **wanted: str) -> Any:
        """Call a method by Google's id: compute.projects.get is ProjectsClient.get."""
        _, resource, method = call.split(".")
        client = self._client(f"{resource[0].upper()}{resource[1:]}Client")
        return getattr(client, method)(**wanted, retry=None, timeout=_CALL_S)

    def _managed(self, call: str, body: Json) -> Json | Refusal:
        verb = call.rpartition(".")[2]
        url = f"{self._base(*_RESOURCE_MANAGER)}/v1/projects/{self.project}:{verb}"
        return self._rest("POST", url, body)

    @functools.cached_property
    def _session(self) -> Any:
        from google.auth.transport.requests import AuthorizedSession

        return AuthorizedSession(counted_for(self.project, self.credentials))

    def _rest(self, verb: str, url: str, body: Json | None) -> Json | Refusal:
        try:
            return _heard(lambda: self._patience.ask(lambda: self._rest_once(verb, url, body)))
        except _Refused as error:
            return error.refusal

    def _rest_once(self, verb: str, url: str, body: Json | None) -> Json:
        answer = self._session.request(verb, url, json=body, timeout=_CALL_S)
        if answer.status_code != 200:
            raise _Refused(of_answer(answer.status_code, _error(answer)))
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise _Refused(NOT_AN_ANSWER)
        return found

    def _base(self, variable: str, host: str) -> str:
        """Return the base URL of an endpoint, with the same requirements as for Compute Engine's."""
        return endpoint_of(self._environ, variable) or f"https://{host}"


class _Refused(Exception):
    """A refusal, or an answer that does not come from Google."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.words)
        self.refusal = refusal


def _passes(error: Exception) -> bool:
    refusal = error.refusal if isinstance(error, _Refused) else understood(error)
    return refusal is not None and refusal.fault is Fault.TRANSIENT


def _heard(ask: Callable[[], R]) -> R | Refusal:
    """Return the result of `ask`, or what the error of Google's libraries means."""
    try:
        return ask()
    except Exception as error:
        refusal = understood(error)
        if refusal is None:
            raise
        return refusal


def _plain(message: Any) -> dict[str, Any]:
    options = {"use_integers_for_enums": False, "always_print_fields_with_no_presence": False}
    value: dict[str, Any] = json.loads(type(message).to_json(message, **options))
    return value


def _error(answer: Any) -> Json:
    """Return the "error" object of an answer; {} if its body is not Google's."""
    try:
        found = answer.json()
    except ValueError:
        return {}
    error: Json = found.get("error", {}) if isinstance(found, dict) else {}
    return error if isinstance(error, dict) else {}
