"""Names in requests to Google: of the machine, the create call, labels and metadata. Pure."""

from __future__ import annotations

import hashlib
import re
import uuid

from orchestrator.model import MachineSpec

USER = "orch"
"""The login account of a machine without OS Login; Google's agent creates it. It may power
the machine off.
"""

NETWORK_TAG = "orch"
"""The network tag that firewall rules select machines by."""

GROUP_PREFIX = "orch-group-"
"""The beginning of the name of every firewall rule and placement policy of a group of machines."""

NOTE_PRICE = "orch-price"
NOTE_DEADLINE = "orch-deadline"
NOTE_IMAGE = "orch-image"
NOTE_USER = "orch-user"
NOTE_KEY = "orch-key"
"""NOTE_USER and NOTE_KEY are for OS Login: the account, and the fingerprint of the key in its profile."""

GUEST_NAMESPACE = "orch"
GUEST_STATE = "state"
"""The guest attribute orch/state: begun, ready, or "failed N"; written by the first boot."""

LABEL_IMAGE = "orch-image"
LABEL_MACHINE = "orch-machine"
LABEL_ORIGIN = "orch-origin"
"""Labels of an image: its own name, the machine of which it was made, and the project whose image that
machine booted.
"""

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_ZONE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_DESCRIBED = "machines of orch that train one model; lease "
_CALLS = uuid.UUID("9b1c6b0e-3b0a-5d0e-9f43-6f7263682e31")


def machine_name(spec: MachineSpec) -> str:
    """Return the machine's name for this attempt: always the same, with valid characters, at most 63."""
    plain = f"{spec.id}-{spec.attempt}"
    if is_name(plain):
        return plain
    return _marked("orch-", spec.id, f"{spec.id}\0{spec.attempt}")


def group_name(group: str) -> str:
    """Return the name of the group's firewall rule: valid, at most 63 characters, unique for each group."""
    plain = f"{GROUP_PREFIX}{group}"
    return plain if is_name(plain) else _marked(GROUP_PREFIX, group, group)


def policy_name(group: str, zone: str) -> str:
    """Return the name of the policy that places the group's machines in this zone, likewise."""
    return group_name(f"{group}-{zone}")


def describes(group: str) -> str:
    """Return the description of what belongs to the group, from which `described_group` reads it."""
    return f"{_DESCRIBED}{group}"


def described_group(description: str) -> str:
    """Return the group; "" if the description is not one of orch."""
    is_ours = description.startswith(_DESCRIBED)
    return description.removeprefix(_DESCRIBED).partition(";")[0] if is_ours else ""


def _marked(prefix: str, text: str, unique: str) -> str:
    mark = hashlib.sha256(unique.encode()).hexdigest()[:12]
    longest = min(40, 50 - len(prefix))
    kept = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].strip("-")
    return f"{prefix}{kept}-{mark}" if kept else f"{prefix}{mark}"


def call_id(spec: MachineSpec, life: int) -> str:
    """Return Google's requestId: a repeated call with the same id is carried out once.

    `life` is increased to get a new id if the machine of an earlier call is gone, or if that call failed.
    """
    return str(uuid.uuid5(_CALLS, f"{spec.id}\0{spec.attempt}\0{spec.offer.zone}\0{life}"))


def base_of(user: str) -> str:
    """Return orch's folder on the machine; it belongs to the login account and needs no first boot script."""
    return f"/home/{user}/orch"


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def is_zone(text: str) -> bool:
    return _ZONE.fullmatch(text) is not None


def is_label(key: str, value: str) -> bool:
    return _LABEL_KEY.fullmatch(key) is not None and _LABEL_VALUE.fullmatch(value) is not None


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def last(url: str) -> str:
    """Return the name at the end of a URL: …/machineTypes/g2-standard-4 is g2-standard-4."""
    return url.rpartition("/")[2]


EARLIER_S = 60
"""Seconds before the deadline at which Google deletes the machine, for deadlines that are at least LONG_S
away.
"""

LONG_S = 600
