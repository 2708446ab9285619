"""Check that a machine could download the data of buckets, before one is rented."""

from __future__ import annotations

from orchestrator.errors import NOTHING_CREATED, SyncError, UsageError
from orchestrator.profile import Profile
from orchestrator.profile.units import show_size
from orchestrator.runtime.http import Client, HttpError
from orchestrator.session import buckets

_NOTHING = NOTHING_CREATED


def require_data(wanted: Profile) -> tuple[buckets.Pin, ...]:
    """Check the data in buckets. Returns its size.

    Raises what would stop the first run: a bucket that does not exist or is not readable, objects that a link
    signed here does not open, or more bytes than the machine's disk.
    """
    pins = tuple(
        buckets.listed(each.bucket, requester_pays=each.requester_pays) for each in wanted.data if each.bucket
    )
    size = sum(pin.size for pin in pins)
    if size >= wanted.resources.disk:
        raise UsageError(
            f"The data has {show_size(size)}, but the machine's disk only "
            f"{show_size(wanted.resources.disk)}.",
            exists=_NOTHING,
            next_command="ask for a larger resources.disk in the profile",
        )
    for pin in pins:
        try:
            _require_readable(pin)
        except buckets.CannotSign:  # then this computer downloads it
            if wanted.cloud != "local" and pin.size > buckets.LARGEST_HERE:
                raise
    return pins


def _require_readable(pin: buckets.Pin) -> None:
    """Read one byte as the machine will. Raises CannotSign, and SyncError if the link does not open it."""
    first = next((each for each in pin.objects if each.size), None)
    if first is None:
        return
    link = buckets.linker(pin)(first)
    try:
        with Client() as client:
            list(client.read_range(link.url, link.headers, 0, 1))
    except HttpError as error:
        raise SyncError(
            f"A link to {first.key} of {pin.source} does not open it, so no machine could fetch it: {error}",
            exists=_NOTHING,
            next_command="give the credentials here the right to read the bucket's objects",
        ) from error
