"""doctor for a cloud: whether `up` would succeed for this user and profile, and what is missing."""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from orchestrator import catalog
from orchestrator.errors import EXIT_AUTH, EXIT_CAPACITY, EXIT_OK, EXIT_PROVISION, UsageError
from orchestrator.leases.offered import preferring
from orchestrator.model import Need, Readiness, Topic, Wanted, clouds

_ACCESS = frozenset({Topic.CREDENTIALS, Topic.API, Topic.PERMISSION})


def examine(
    cloud: str,
    profile: str | Path | None = None,
    *,
    region: str | None = None,
    overrides: Sequence[str] = (),
) -> Readiness:
    """Check everything that `up` needs of `cloud`. Creates nothing and costs nothing.

    With `profile`, the machine that `up` would try first is checked; without, the smallest one. `region`
    replaces the profile's. Raises UsageError and ProfileError; a refusal of the cloud becomes a failed check.
    """
    examined = _examined()
    if cloud not in examined:
        known = ", ".join(examined)
        raise UsageError(f"There is no doctor for {cloud!r}; there are {known}.", next_command="orch doctor")
    need = _need(cloud, profile, region, overrides)
    recorded = catalog.offers(need) if cloud in catalog.clouds() else ()
    readiness = importlib.import_module(clouds.traits(cloud).readiness)
    found: Readiness = readiness.examine(
        Wanted(tuple(recorded), need.disk, need.region or need.prefer, need.image)
    )
    return found


def _examined() -> tuple[str, ...]:
    """Clouds that support these checks."""
    return tuple(each.name for each in clouds.every() if each.readiness)


def _need(cloud: str, profile: str | Path | None, region: str | None, overrides: Sequence[str]) -> Need:
    if profile is None:
        return Need(cloud, arch="x86_64", region=region, prefer=clouds.home_region(cloud, os.environ))
    from orchestrator.profile import load

    wanted = load(Path(profile), overrides=overrides)
    if wanted.cloud not in (cloud, clouds.ANY):
        raise UsageError(
            f"{profile} is for {wanted.cloud}, not for {cloud}.",
            next_command=shlex.join(["orch", "doctor", wanted.cloud, str(profile)])
            if wanted.cloud in _examined()
            else "orch doctor",
        )
    need = replace(preferring(wanted), cloud=cloud)
    return need if region in (None, need.region) else replace(need, region=region, zone=None, regions=())


def exit_code(readiness: Readiness) -> int:
    """0 ready; 3 credentials or permissions; 4 quota; 5 anything else that is missing."""
    topics = {check.topic for check in readiness.missing}
    if topics & _ACCESS:
        return EXIT_AUTH
    if Topic.QUOTA in topics:
        return EXIT_CAPACITY
    return EXIT_PROVISION if topics else EXIT_OK


def as_json(readiness: Readiness) -> dict[str, Any]:
    """{ready, exit_code, cloud, identity, account, region, offer, checks[{topic, name, state, …}], …}"""
    code = exit_code(readiness)
    return {"ready": code == EXIT_OK, "exit_code": code, **asdict(readiness)}
