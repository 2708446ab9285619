"""Compare two spellings of a version (PEP 440)."""

from __future__ import annotations


def same_version(one: str, other: str) -> bool:
    """Return whether two spellings are one version: "1.0" and "1.0.0" are, "1.0+cpu" and "1.0" are not."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other
