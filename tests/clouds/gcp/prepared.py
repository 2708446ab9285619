"""What an emulated Google Cloud imports before it serves, once per process that forks them."""

from __future__ import annotations

from collections.abc import Mapping


def prepare(_environ: Mapping[str, str]) -> None:
    """For each fork; the first call does it."""
    import tests.clouds.gcp.server  # noqa: F401
