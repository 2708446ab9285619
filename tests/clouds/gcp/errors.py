"""Errors as Google's JSON APIs answer them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


_STATUS = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}


class ApiError(Exception):
    """An HTTP answer that is an error; `reason` goes to errors[].reason, where clients look for it.

    `code`: its google.rpc.Code, where the HTTP status does not say it.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, details: list[Json] | None = None, code: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or []

    def body(self) -> Json:
        one = {"message": self.message, "domain": _domain(self.reason), "reason": self.reason}
        error: Json = {"code": self.status, "message": self.message, "errors": [one]}
        if self.details:
            error["status"] = self.code or _STATUS.get(self.status, "INVALID_ARGUMENT")
            error["details"] = self.details
        return {"error": error}


class OperationError(Exception):
    """An operation that was accepted with HTTP 200 and fails later; `http` is what it says of itself then."""

    def __init__(self, code: str, message: str, http: tuple[int, str], details: list[Json] | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.http = http
        self.details = details or []


def invalid(field: str, value: object, why: str) -> ApiError:
    """A field of the body that does not do: `field` as "scheduling.maxRunDuration"."""
    return ApiError(400, "invalid", f"Invalid value for field 'resource.{field}': '{value}'. {why}")


def required(field: str) -> ApiError:
    return ApiError(400, "required", f"Required field 'resource.{field}' not specified")


def unknown_name(kind: str, name: str, where: str) -> ApiError:
    """A field or query parameter that the API does not have."""
    at = f" at '{where}'" if where else ""
    message = f'Invalid JSON payload received. Unknown name "{name}"{at}: {kind}.'
    violation = {"field": where, "description": message}
    detail = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}
    return ApiError(400, "badRequest", message, details=[detail])


def error_info(reason: str, **metadata: str) -> Json:
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": metadata,
    }


def not_found(resource: str) -> ApiError:
    return ApiError(404, "notFound", f"The resource '{resource}' was not found")


def exists(resource: str) -> ApiError:
    return ApiError(409, "alreadyExists", f"The resource '{resource}' already exists")


def _domain(reason: str) -> str:
    return (
        "usageLimits"
        if reason in ("rateLimitExceeded", "quotaExceeded", "userRateLimitExceeded")
        else "global"
    )
