"""Requests that go to the configured address only, and whose errors do not reveal it."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuse redirects."""

    def redirect_request(self, *_: Any) -> None:
        return None


def opener() -> urllib.request.OpenerDirector:
    """Return an opener that follows no redirect."""
    return urllib.request.build_opener(_NoRedirect())


def reason(error: Exception) -> str:
    """Return why a connection failed; only the kind of error if its text may contain the address."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(getattr(inner, "strerror", None) or type(inner).__name__)
