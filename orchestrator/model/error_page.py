"""The code of an error's page, which `orch explain` shows: `run-lost` for RunLost."""

from __future__ import annotations

import re

from orchestrator import errors
from orchestrator.errors import OrchError, ProviderError


def page_of(error: OrchError) -> str:
    """The code, by the leaf of the tree of errors.py that the error belongs to; for a cloud, by its fault."""
    if isinstance(error, ProviderError):
        return f"cloud-{error.fault}"
    leaf = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
    return re.sub(r"(?<!^)(?=[A-Z])", "-", leaf.__name__.removesuffix("Error")).lower()
