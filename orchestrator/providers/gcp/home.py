"""Find the user's configured region in gcloud's configuration, without loading a library."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

from orchestrator.providers.gcp.names import region_of


def region(environ: Mapping[str, str]) -> str | None:
    """Return gcloud's compute/region, or the region of its compute/zone; the environment comes before
    files.
    """
    named = environ.get("CLOUDSDK_COMPUTE_REGION", "")
    zone = environ.get("CLOUDSDK_COMPUTE_ZONE", "")
    if not named and not zone:
        named, zone = _configured(environ)
    return named or region_of(zone) or None


def _configured(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return region and zone of the active configuration; "" for a value that is not set."""
    home = Path(environ.get("HOME", "/nonexistent"))
    folder = Path(environ.get("CLOUDSDK_CONFIG") or home / ".config/gcloud")
    found = configparser.ConfigParser(interpolation=None)
    try:
        active = folder / "active_config"
        name = environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or (
            active.read_text("utf-8").strip() if active.is_file() else "default"
        )
        found.read(folder / "configurations" / f"config_{name}")
    except (OSError, UnicodeDecodeError, configparser.Error):
        return "", ""
    return found.get("compute", "region", fallback=""), found.get("compute", "zone", fallback="")
