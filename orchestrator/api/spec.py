"""From a profile and a machine to the plain facts that labels and the ledger hold."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from orchestrator.model import (
    FAR_BASE,
    LABEL_EXPIRES,
    LABEL_LASTS,
    LABEL_LEASE,
    LABEL_OWNER,
    LABEL_SPEC,
)
from orchestrator.profile import Profile


def profile_facts(profile: Profile, overrides: Sequence[str]) -> dict[str, Any]:
    """What a later command needs to read the same profile again."""
    return {
        "name": profile.name,
        "cloud": profile.cloud,
        "path": str(profile.path),
        "overrides": list(overrides),
        "digest": profile.digest,
    }


def spec_labels(
    lease: str, profile: Profile, owner: str, deadline: datetime | None = None, lasts: float | None = None
) -> dict[str, str]:
    """Labels in the alphabet that every cloud takes: lower-case letters, digits, `-` and `_`.

    `deadline` by this computer's clock; `lasts` in seconds from the machine's start."""
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
    """The script of the first boot: our base folder. It holds no secret."""
    return f"#!/bin/sh\nset -e\nmkdir -p {FAR_BASE}\nchmod 755 {FAR_BASE}\n"
