"""Turn the exceptions of Google's libraries into ProviderError."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.gcp.faults import Quota, Refusal, of_answer

_LOGIN = "gcloud auth application-default login    # then: orch doctor gcp"

NOT_AN_ANSWER = Refusal(Fault.TRANSIENT, "NotAnAnswer", "the answer does not come from Google's API.")


@dataclass(frozen=True)
class Doing:
    """The attempted action: a phrase that follows "Google refused to", and the permission that it needs."""

    what: str
    permission: str


@dataclass(frozen=True)
class Asker:
    """The caller: the identity, as far as it is known, and the project."""

    identity: str
    project: str


def understood(error: BaseException) -> Refusal | None:
    """Return the refusal in an exception of Google's libraries; None for any other exception."""
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.protobuf.json_format import ParseError
    from requests import exceptions as web

    if isinstance(error, api.GoogleAPICallError):
        return of_answer(int(error.code or 0), _body(error))
    if isinstance(error, ParseError):
        return NOT_AN_ANSWER
    if isinstance(error, auth.TransportError):
        return Refusal(Fault.TRANSIENT, "TransportError", str(error))
    if isinstance(error, auth.GoogleAuthError):
        return Refusal(Fault.AUTH, type(error).__name__, str(error))
    if isinstance(error, api.RetryError | api.GoogleAPIError | web.RequestException | OSError):
        return Refusal(Fault.TRANSIENT, type(error).__name__, str(error))
    return None


def _body(error: Any) -> dict[str, Any]:
    """Return the "error" object of the answer from the library's exception."""
    words = str(error.message)
    entries = list(error.errors or ())
    told = next((str(entry["message"]) for entry in entries if entry.get("message")), "")
    return {"message": told or words, "errors": entries, "details": list(error.details or ())}


def refused(
    refusal: Refusal, doing: Doing, asker: Asker, usage: Callable[[Quota], float | None] = lambda _: None
) -> ProviderError:
    """Return the error with a message for users. `usage` returns how much of a quota is used, if known."""
    writers = {
        Fault.AUTH: _not_allowed,
        Fault.INVALID: _invalid,
        Fault.CAPACITY: _sold_out,
        Fault.TRANSIENT: _passing,
    }
    if refusal.fault is Fault.QUOTA:
        return _quota(refusal, doing, asker, usage)
    return writers.get(refusal.fault, _plain)(refusal, doing, asker)


def _not_allowed(refusal: Refusal, doing: Doing, asker: Asker) -> ProviderError:
    permission = refusal.permission or doing.permission
    if refusal.status == 0:
        message = (
            f"Google was not asked to {doing.what}: {refusal.words} Log in, or renew expired credentials."
        )
        return ProviderError(Fault.AUTH, message, code=refusal.code, next_command=_LOGIN)
    if refusal.is_unbilled or refusal.is_disabled_api:
        return _not_ready(refusal, doing, asker)
    message = (
        f"Google refused to {doing.what} in the project {asker.project}: {refusal.words} "
        f"The request was made as {asker.identity}; it needs the permission {permission}."
    )
    if refusal.status == 401:
        message = (
            f"Google did not accept the credentials to {doing.what} in the project {asker.project}: they are "
            f"expired or revoked; renew them. ({refusal.words})"
        )
        return ProviderError(Fault.AUTH, message, code=refusal.code, next_command=_LOGIN)
    return ProviderError(Fault.AUTH, message, code=refusal.code, next_command="orch doctor gcp")


def _not_ready(refusal: Refusal, doing: Doing, asker: Asker) -> ProviderError:
    """Return the refusal by a project that is not set up: no permission is missing."""
    message = f"Google refused to {doing.what} in the project {asker.project}: {refusal.words}"
    remedy = pay_for(asker.project) if refusal.is_unbilled else "orch setup gcp    # it enables the APIs"
    return ProviderError(Fault.AUTH, message, code=refusal.code, next_command=remedy)


def pay_for(project: str) -> str:
    """Return the command that links a billing account to a project."""
    return f"gcloud billing projects link {project} --billing-account=ACCOUNT"


def _quota(
    refusal: Refusal, doing: Doing, asker: Asker, usage: Callable[[Quota], float | None]
) -> ProviderError:
    where = f"https://console.cloud.google.com/iam-admin/quotas?project={asker.project}"
    told = ""
    command = None
    if refusal.quota:
        used = usage(refusal.quota)
        place = refusal.quota.region or "all regions together"
        limit = f"{refusal.quota.limit:g}" if refusal.quota.limit is not None else "fewer"
        told = f" The quota {refusal.quota.metric} of {place} allows {limit}"
        told += f", of which {used:g} are in use." if used is not None else "."
        if refusal.quota.region:
            command = f"gcloud compute regions describe {refusal.quota.region} --project={asker.project}"
    message = f"Google refused to {doing.what}: {refusal.words}{told} Request an increase at {where}"
    error = ProviderError(Fault.QUOTA, message, code=refusal.code, next_command=command)
    error.everywhere = refusal.quota is not None and not refusal.quota.region
    return error


def _invalid(refusal: Refusal, doing: Doing, asker: Asker) -> ProviderError:
    field = f" The field is {refusal.field}." if refusal.field and refusal.field not in refusal.words else ""
    message = f"Google refused to {doing.what} in {asker.project}: {refusal.words}{field}"
    return ProviderError(Fault.INVALID, message, code=refusal.code)


def _sold_out(refusal: Refusal, doing: Doing, asker: Asker) -> ProviderError:
    del asker
    message = f"Google has no capacity to {doing.what} at the moment: {refusal.words}"
    return ProviderError(Fault.CAPACITY, message, code=refusal.code)


def _passing(refusal: Refusal, doing: Doing, asker: Asker) -> ProviderError:
    del asker
    message = f"Google could not {doing.what} just now: {refusal.words}"
    return ProviderError(Fault.TRANSIENT, message, code=refusal.code)


def _plain(refusal: Refusal, doing: Doing, asker: Asker) -> ProviderError:
    message = f"Google refused to {doing.what} in {asker.project}: {refusal.words}"
    return ProviderError(refusal.fault, message, code=refusal.code)
