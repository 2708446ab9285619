"""Derive the facts that labels and the ledger hold from a profile and a machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from orchestrator.errors import ProfileError, UsageError
from orchestrator.ledger import Lease
from orchestrator.model import (
    FAR_BASE,
    LABEL_EXPIRES,
    LABEL_LASTS,
    LABEL_LEASE,
    LABEL_OWNER,
    LABEL_SPEC,
)
from orchestrator.profile import Profile, load
from orchestrator.profile.overrides import ENV_PREFIX, is_set, name_of, secrets_of, without_secrets


def profile_facts(profile: Profile, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the facts from which a later command reads the same profile again, for the ledger.

    `withheld`: the names of overrides whose values may be secrets, and are stored nowhere.
    """
    return {
        "name": profile.name,
        "cloud": profile.cloud,
        "path": str(profile.path),
        "overrides": list(without_secrets(overrides)),
        "withheld": sorted({name_of(flag) for flag in secrets_of(overrides)}),
        "digest": _digest(profile, overrides),
    }


def _digest(profile: Profile, overrides: Sequence[str]) -> str:
    """Return the profile's digest without values that may be secrets: with the digest, a guessed secret could
    be verified.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    kept = without_secrets(overrides)
    if len(kept) == len(overrides) and len(environ) == len(os.environ):
        return profile.digest
    try:
        return load(profile.path, overrides=kept, environ=environ).digest
    except ProfileError:  # the profile is complete with them only
        return ""


def require_given(lease: Lease, overrides: Sequence[str], again: str) -> None:
    """Raise UsageError if `up` was given a variable of train.env whose value is needed again, and was not
    given now. `again`: the command that repeats the call.
    """
    names = [name for name in lease.profile.get("withheld", ()) if not is_set(name, overrides, os.environ)]
    if names:
        lacking = "".join(f" --set {name}=…" for name in names)
        raise UsageError(
            f"`orch up` was given {', '.join(names)}. Such a value may be a secret, so it was not stored.",
            exists=f"The machine of {lease.id} is still running, at ${lease.price:.2f}/h.",
            next_command=f"{again}{lacking}    # or, in the profile: train.env: NAME: {{from_env: NAME}}",
        )


def spec_labels(
    lease: str, profile: Profile, owner: str, deadline: datetime | None = None, lasts: float | None = None
) -> dict[str, str]:
    """Return the labels of a machine, in the alphabet that every cloud accepts: lower-case letters, digits,
    `-` and `_`.

    `deadline` by this computer's clock; `lasts` in seconds from the machine's start.
    """
    resources = repr(sorted(asdict(profile.need()).items())).encode()
    labels = {
        LABEL_LEASE: lease,
        LABEL_OWNER: owner,
        LABEL_SPEC: hashlib.sha256(resources).hexdigest()[:16],
    }
    if deadline is not None:
        labels[LABEL_EXPIRES] = str(int(deadline.timestamp()))
    if lasts is not None:
        labels[LABEL_LASTS] = str(int(lasts))
    return labels


def user_data() -> str:
    """Return the script of the first boot, which creates orch's base folder. It holds no secret."""
    return f"#!/bin/sh\nset -e\nmkdir -p {FAR_BASE}\nchmod 755 {FAR_BASE}\n"
