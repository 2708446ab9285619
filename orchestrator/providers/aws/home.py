"""Find the user's configured AWS region as the AWS tools do, without loading a library."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

DEFAULT = "us-east-1"
"""The region of a user who has configured none: `orch setup aws` prepares it."""


def region(environ: Mapping[str, str]) -> str:
    """Return AWS_REGION, AWS_DEFAULT_REGION or the region of the active AWS profile; else DEFAULT."""
    named = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    return named or _of_profile(environ) or DEFAULT


def _of_profile(environ: Mapping[str, str]) -> str | None:
    home = Path(environ.get("HOME", "/nonexistent"))
    path = Path(environ.get("AWS_CONFIG_FILE") or home / ".aws/config")
    name = environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE") or "default"
    found = configparser.ConfigParser(interpolation=None)
    try:
        found.read(path)
    except (OSError, UnicodeDecodeError, configparser.Error):
        return None
    section = "default" if name == "default" else f"profile {name}"
    return found.get(section, "region", fallback=None)
