"""The code of the page that `orch explain` shows for an error: `run-lost` for RunLost."""

from __future__ import annotations

import re

from orchestrator import errors
from orchestrator.errors import OrchError, ProviderError


def page_of(error: OrchError) -> str:
    """Return the code of an error's page: its class in errors.py, in kebab case; for a cloud's error, its
    fault.
    """
    if isinstance(error, ProviderError):
        return f"cloud-{error.fault}"
    leaf = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
    return re.sub(r"(?<!^)(?=[A-Z])", "-", leaf.__name__.removesuffix("Error")).lower()
