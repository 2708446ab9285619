"""Convert Google's description of an instance to a Machine. Pure."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.model import LABEL_LEASE, Machine, MachineState
from orchestrator.providers import clock
from orchestrator.providers.gcp.names import (
    EARLIER_S,
    LONG_S,
    NOTE_DEADLINE,
    NOTE_IMAGE,
    NOTE_KEY,
    NOTE_PRICE,
    NOTE_USER,
    USER,
    base_of,
    last,
)
from orchestrator.providers.gcp.tunnel import tunnel_command

Json = Mapping[str, Any]

_STATES = {
    "PROVISIONING": MachineState.PENDING,
    "STAGING": MachineState.PENDING,
    "REPAIRING": MachineState.PENDING,
    "RUNNING": MachineState.RUNNING,
    "STOPPING": MachineState.STOPPING,
    "PENDING_STOP": MachineState.STOPPING,
    "SUSPENDING": MachineState.STOPPING,
    "DEPROVISIONING": MachineState.STOPPING,
    "TERMINATED": MachineState.STOPPED,
    "STOPPED": MachineState.STOPPED,
    "SUSPENDED": MachineState.STOPPED,
}
DISK_USD_GIB_MONTH = 0.10
"""US dollars: pd-balanced in us-central1, the more expensive of the two kinds that orch creates, in 2026."""

_HOURS_A_MONTH = 730

ENDED_BY_CLOUD_S = 120.0
"""Seconds after its deadline at which a machine powers itself off, if Google has not deleted it by then.

A machine that powers itself off first stays, stopped, with its disk: Google's timer only deletes running
ones.
"""

_KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


def machine(instance: Json, project: str, now: datetime | None = None) -> Machine:
    """Return the instance as a Machine. `now`: the time of the answer by Google's clock."""
    notes = _notes(instance)
    name, zone = str(instance["name"]), last(str(instance.get("zone", "")))
    public, private = addresses(instance)
    detail: dict[str, Any] = {
        "base": base_of(user_of(instance)),
        "project": project,
        "number": str(instance.get("id", "")),
        "address": public or private,
        "image": notes.get(NOTE_IMAGE),
        "spot": instance.get("scheduling", {}).get("provisioningModel") == "SPOT",
    }
    if NOTE_KEY in notes:
        detail["login_key"] = notes[NOTE_KEY]
    if state(instance) is MachineState.STOPPED:
        detail["stopped"] = _what_a_stopped_one_costs(instance)
    lasts = int(instance.get("scheduling", {}).get("maxRunDuration", {}).get("seconds", 0))
    if lasts:
        detail["ended_by_cloud_s"] = ENDED_BY_CLOUD_S
        detail["ended_early_s"] = EARLIER_S if lasts >= LONG_S - EARLIER_S else 0
    if not has_public_address(instance):
        detail["tunnel"] = shlex.join(tunnel_command(project, zone, name, 2222))
    created = _time(instance.get("creationTimestamp"))
    return Machine(
        provider="gcp",
        id=name,
        name=name,
        state=state(instance),
        labels=dict(instance.get("labels", {})),
        instance_type=last(str(instance.get("machineType", ""))),
        zone=zone,
        price=_price(notes.get(NOTE_PRICE)),
        created_at=created or datetime.now(UTC),
        deadline=_deadline(instance, notes, created),
        detail=detail,
        age=clock.age(created, now),
    )


def user_of(instance: Json) -> str:
    """Return the login account of the machine."""
    return _notes(instance).get(NOTE_USER, USER)


def origin(instance: Json) -> str:
    """Return the project of the image that the machine booted; "" if it is not noted."""
    path = _notes(instance).get(NOTE_IMAGE, "")
    return path.split("/")[1] if path.startswith("projects/") else ""


def state(instance: Json) -> MachineState:
    return _STATES.get(str(instance.get("status", "")), MachineState.PENDING)


def is_ours(instance: Json) -> bool:
    """Return whether orch created the instance; others are never listed, so never deleted."""
    return LABEL_LEASE in instance.get("labels", {}) and NOTE_DEADLINE in _notes(instance)


def addresses(instance: Json) -> tuple[str, str]:
    """Return the public and the internal address; "" if there is none (yet)."""
    interface: Json = next(iter(instance.get("networkInterfaces", ())), {})
    public = next((c["natIP"] for c in interface.get("accessConfigs", ()) if c.get("natIP")), "")
    return str(public), str(interface.get("networkIP", ""))


def has_public_address(instance: Json) -> bool:
    """Return whether the machine has, or will get, a public address."""
    return any(interface.get("accessConfigs") for interface in instance.get("networkInterfaces", ()))


def host_keys(attributes: Iterable[Json]) -> tuple[str, ...]:
    """Return the OpenSSH host keys from the guest attributes, best kind first; invalid ones are left out."""
    found = {str(item.get("key", "")): str(item.get("value", "")).strip() for item in attributes}
    return tuple(f"{kind} {found[kind]}" for kind in _KEY_TYPES if _is_key(kind, found.get(kind, "")))


def _is_key(kind: str, text: str) -> bool:
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(blob) > 4 and blob[4 : 4 + int.from_bytes(blob[:4], "big")] == kind.encode()


def _notes(instance: Json) -> dict[str, str]:
    items = instance.get("metadata", {}).get("items", ())
    return {str(item["key"]): str(item.get("value", "")) for item in items}


def _what_a_stopped_one_costs(instance: Json) -> str:
    """Return a sentence on a machine that powered itself off: it is not billed, but its disk is."""
    size = sum(int(disk.get("diskSizeGb") or 0) for disk in instance.get("disks", ()))
    cost = size * DISK_USD_GIB_MONTH / _HOURS_A_MONTH
    return f"It is stopped; its disk of {size} GiB costs about ${cost:.4f}/h until it is deleted: orch down"


def _price(text: str | None) -> float:
    try:
        return float(text or "0")
    except ValueError:
        return 0.0


def _deadline(instance: Json, notes: Mapping[str, str], created: datetime | None) -> datetime | None:
    noted = _time(notes.get(NOTE_DEADLINE))
    seconds = instance.get("scheduling", {}).get("maxRunDuration", {}).get("seconds")
    if noted or not seconds or not created:
        return noted
    return created + timedelta(seconds=int(seconds))


def _time(text: str | None) -> datetime | None:
    """Parse RFC 3339 as aware UTC."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except ValueError:
        return None
