"""What the groups of machines of several clouds have in common: the check of arguments, and a refusal."""

from __future__ import annotations

import re

from orchestrator.errors import Fault, ProviderError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def require_sound(group: str, ports: range) -> None:
    """Raise INVALID unless `group` is a name and `ports` a range of TCP ports without gaps."""
    if not _NAME.fullmatch(group):
        raise ProviderError(
            Fault.INVALID, f"{group!r} is not a valid name of a group of machines.", code="GroupName"
        )
    if not ports or ports.step != 1 or not 0 < ports.start < ports.stop <= 1 << 16:
        raise ProviderError(Fault.INVALID, f"{ports} are not consecutive TCP ports.", code="GroupPorts")


def still_in_use(cloud: str, what: str, region: str, error: ProviderError) -> ProviderError:
    """Return the refusal, as one that passes, to delete what the machines of a group have in common."""
    return ProviderError(
        Fault.TRANSIENT,
        f"{cloud} still needs the {what}: its machines are ending.",
        code=error.code,
        exists=f"The {what} in {region}, which costs nothing.",
    )
