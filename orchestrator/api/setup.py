"""setup: create what `up` needs in a cloud account, or remove it again."""

from __future__ import annotations

import importlib
import ipaddress
import os
import shlex
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.model import Progress, clouds
from orchestrator.model.progress import as_progress
from orchestrator.model.setup import Setup, SetupStep

WHO_AM_I = "https://checkip.amazonaws.com"
"""Answers the caller's public address in one line of plain text."""

_LONGEST = 100
Approve = Callable[[str, Sequence[SetupStep]], bool]


@dataclass(frozen=True)
class SetupReport:
    """`where`: account and region.

    `changed`: the steps that were carried out; () if nothing had to be done.
    """

    where: str
    undone: bool
    changed: tuple[SetupStep, ...]


def setup(
    cloud: str,
    *,
    source: str | None = None,
    region: str | None = None,
    undo: bool = False,
    approve: Approve | None = None,
    environ: Mapping[str, str] = os.environ,
    progress: Progress | Callable[[str], None] | None = None,
) -> SetupReport:
    """Create what is missing, one step after another; after an interruption the next call continues.

    `source`: the addresses that may use ssh, as CIDR; default: this computer's public address. Raises
    UsageError if not approved, ProviderError if the cloud refuses.
    """
    tell = as_progress(progress)
    known = _setup_of(cloud)
    if undo:
        where, steps = known.made(region, environ)
    else:
        where, steps = known.lacking(_range(source or own_address(cloud, region)), region, environ)
    if steps and approve and not approve(where, steps):
        raise UsageError("Not approved; nothing was changed.")
    for step in steps:
        tell.say(f"{'Removing' if undo else 'Creating'} {step.name}: {step.detail}")
        step.act()
    return SetupReport(where, undo, tuple(steps))


def _setup_of(cloud: str) -> Setup:
    able = [each.name for each in clouds.every() if each.setup]
    if cloud not in able:
        raise UsageError(
            f"There is nothing to set up for {cloud!r}. Clouds with a setup: {', '.join(able)}.",
            next_command="orch doctor",
        )
    found: Setup = importlib.import_module(clouds.traits(cloud).setup)
    return found


def own_address(cloud: str, region: str | None = None, url: str = WHO_AM_I) -> str:
    """Return this computer's public address. Raises UsageError if it cannot be determined."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(ipaddress.ip_address(answer.read(_LONGEST).decode("ascii").strip()))
    except (OSError, ValueError) as error:
        asked = ["--region", region] if region else []
        raise UsageError(
            f"This computer's public address is needed, to let ssh in from it alone; {url} did not tell it: "
            f"{error}. Give the address yourself.",
            next_command=shlex.join(["orch", "setup", cloud, *asked, "--from", "YOUR.ADDRESS/32"])
            + "    # YOUR.ADDRESS: of this computer, as others see it",
        ) from error


def _range(source: str) -> str:
    """Normalise a CIDR. Raises UsageError for a range that admits everybody."""
    try:
        found = ipaddress.ip_network(source, strict=False)
    except ValueError as error:
        raise UsageError(f"--from takes an address or a range like 203.0.113.7/32: {error}.") from error
    if found.prefixlen == 0:
        raise UsageError(f"{source} admits everybody; ssh must be admitted from your own addresses only.")
    return str(found)
