"""Build the body of the one insert call from a MachineSpec, with the names of Google's API. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import AS_MADE, MachineSpec, Offer, Volume
from orchestrator.providers.gcp import images
from orchestrator.providers.gcp.disks import MARKET
from orchestrator.providers.gcp.images import Image
from orchestrator.providers.gcp.names import (
    EARLIER_S,
    LONG_S,
    NETWORK_TAG,
    NOTE_DEADLINE,
    NOTE_IMAGE,
    NOTE_KEY,
    NOTE_PRICE,
    NOTE_USER,
    USER,
    is_label,
    machine_name,
    policy_name,
    region_of,
)
from orchestrator.providers.gcp.os_login import Login
from orchestrator.providers.gcp.startup import startup_script

Json = dict[str, Any]

SHORTEST_S = 30
LONGEST_S = 120 * 24 * 3600
"""Maximum of maxRunDuration, in seconds."""

_GIB = 1 << 30
_ALL_SCOPES = "https://www.googleapis.com/auth/cloud-platform"
"""The scope for all APIs: as Google advises, only roles limit what the service account may do."""

_NEVER_MIGRATE = frozenset({"a2", "a3", "a4", "a4x", "ct5lp", "ct6e", "g2", "g4", "h3", "h4d"})
_ATTACHED = {
    "T4": "nvidia-tesla-t4",
    "P4": "nvidia-tesla-p4",
    "V100": "nvidia-tesla-v100",
    "P100": "nvidia-tesla-p100",
}


@dataclass(frozen=True)
class Setting:
    """Where machines are created: the project; `subnetwork`: a name or path, "" for the default network.
    `internal`: machines get no public address; `tunnel`: they are reached through IAP. `os_login`: whether
    the key goes into the caller's login profile; None: if the organisation requires it.
    """

    project: str
    subnetwork: str = ""
    internal: bool = False
    tunnel: bool = False
    os_login: bool | None = None

    @classmethod
    def of(cls, project: str, environ: Mapping[str, str]) -> Setting:
        internal = environ.get("ORCH_GCP_INTERNAL", "").strip().lower()
        if internal not in ("", "0", "1", "iap"):
            raise ProviderError(
                Fault.INVALID,
                f"ORCH_GCP_INTERNAL is {internal!r}; it must be 0, 1 (no public address: reached from "
                "inside the network or over a VPN) or iap (no public address: reached through Google's "
                "tunnel).",
                code="Setting",
            )
        subnetwork = environ.get("ORCH_GCP_SUBNETWORK", "").strip()
        return cls(project, subnetwork, internal in ("1", "iap"), internal == "iap", _os_login(environ))


def _os_login(environ: Mapping[str, str]) -> bool | None:
    told = environ.get("ORCH_GCP_OS_LOGIN", "").strip()
    if told not in ("", "0", "1"):
        raise ProviderError(
            Fault.INVALID,
            f"ORCH_GCP_OS_LOGIN is {told!r}; it must be 1 (the key goes into your OS Login profile), 0 (into "
            "the metadata of the machine), or not set (as the organisation's policy says).",
            code="Setting",
        )
    return told == "1" if told else None


def require_sound(spec: MachineSpec) -> None:
    """Raise ProviderError(INVALID) with the invalid part, because Google's message would be less clear."""
    odd = [key for key, value in _labels(spec).items() if not is_label(key, value)]
    problems = {
        "ssh_public_key is not one OpenSSH line": len(spec.ssh_public_key.strip().splitlines()) != 1,
        "user_data does not begin with #!": bool(spec.user_data) and not spec.user_data.startswith("#!"),
        "the deadline has no time zone": spec.deadline.tzinfo is None,
        "the offer names no zone": not spec.offer.zone,
        f"labels {', '.join(odd)}: only lower-case letters, digits, - and _ are allowed": bool(odd),
    }
    for problem, present in problems.items():
        if present:
            raise ProviderError(Fault.INVALID, f"Refused for {machine_name(spec)}: {problem}.", code="Spec")


def instance(
    spec: MachineSpec, setting: Setting, image: Image, now: datetime, login: Login | None = None
) -> Json:
    """Return the Instance resource. One call contains everything, so an interruption leaves nothing
    incomplete.

    `login`: the OS Login account that has the key; None: the call contains the key. Google deletes the
    machine at `spec.deadline`, whatever happens to this process.
    """
    zone = f"projects/{setting.project}/zones/{spec.offer.zone}"
    body: Json = {
        "name": machine_name(spec),
        "description": "Made by orch; ends by itself at its deadline.",
        "machineType": f"{zone}/machineTypes/{spec.offer.instance_type}",
        "labels": _labels(spec),
        "tags": {"items": [NETWORK_TAG]},
        "disks": [_boot_disk(spec, zone, image)],
        "networkInterfaces": [_interface(setting, region_of(spec.offer.zone))],
        "scheduling": _scheduling(spec, now),
        "metadata": {"items": _items(_metadata(spec, image, login))},
        "serviceAccounts": [{"email": spec.identity, "scopes": [_ALL_SCOPES]}] if spec.identity else [],
        "shieldedInstanceConfig": _shield(image),
    }
    if spec.reservation:
        body["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [spec.reservation],
        }
    if spec.group:
        region, name = region_of(spec.offer.zone), policy_name(spec.group, spec.offer.zone)
        body["resourcePolicies"] = [f"projects/{setting.project}/regions/{region}/resourcePolicies/{name}"]
    attached = attachment(spec.offer)
    if attached:
        link = f"{zone}/acceleratorTypes/{attached}"
        body["guestAccelerators"] = [
            {"acceleratorType": link, "acceleratorCount": spec.offer.accelerator_count}
        ]
    return body


def _shield(image: Image) -> Json:
    """Return all three Shielded VM options, which compute.requireShieldedVm requires, if the image works with
    them.
    """
    secure = images.boots_securely(image.origin)
    told = {"enableVtpm": True, "enableIntegrityMonitoring": True}
    return {**told, "enableSecureBoot": True} if secure else told


def attachment(offer: Offer) -> str:
    """Return the GPU to attach, as Google names it; "" if the machine type includes it."""
    if offer.attach:
        return offer.attach
    if _family(offer) != "n1" or not offer.accelerator:
        return ""
    name = offer.accelerator.upper()
    return _ATTACHED.get(name, f"nvidia-{name.lower()}")


def disk_type(offer: Offer, wanted: Volume = AS_MADE) -> str:
    found = MARKET.chosen(wanted, offer.instance_type)
    return found.name if found else MARKET.kinds[0].name


def _family(offer: Offer) -> str:
    return offer.instance_type.partition("-")[0]


def _boot_disk(spec: MachineSpec, zone: str, image: Image) -> Json:
    size = -(-spec.disk // _GIB)
    if size < image.disk_gib:
        raise ProviderError(
            Fault.INVALID,
            f"resources.disk is {size} GiB; the image {image.path} needs {image.disk_gib} GiB.",
            code="DiskTooSmall",
        )
    return {
        "boot": True,
        "autoDelete": True,
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "initializeParams": {
            "sourceImage": image.path,
            "diskSizeGb": str(size),
            "diskType": f"{zone}/diskTypes/{disk_type(spec.offer, spec.volume)}",
            "labels": _labels(spec),
            **_ordered(spec),
        },
    }


def _labels(spec: MachineSpec) -> dict[str, str]:
    return {**spec.own_labels, **spec.labels}


def _ordered(spec: MachineSpec) -> dict[str, str]:
    wanted = {"provisionedIops": spec.volume.iops, "provisionedThroughput": spec.volume.throughput}
    return {key: str(value) for key, value in wanted.items() if value}


def _interface(setting: Setting, region: str) -> Json:
    given = setting.subnetwork
    if not given:
        interface: Json = {"network": f"projects/{setting.project}/global/networks/default"}
    elif "/" in given:
        interface = {"subnetwork": given}
    else:
        interface = {"subnetwork": f"projects/{setting.project}/regions/{region}/subnetworks/{given}"}
    if not setting.internal:
        interface["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]
    return interface


def _scheduling(spec: MachineSpec, now: datetime) -> Json:
    left = int(spec.seconds(now))
    if not SHORTEST_S <= left <= LONGEST_S:
        raise ProviderError(
            Fault.INVALID,
            f"The deadline of {machine_name(spec)} is {left} s away; Google's timer allows {SHORTEST_S} s "
            f"to {LONGEST_S // 86400} days. Change max_duration.",
            code="Deadline",
        )
    return {
        "provisioningModel": "SPOT" if spec.offer.spot else "STANDARD",
        "automaticRestart": False,
        "onHostMaintenance": "MIGRATE" if _migrates(spec.offer) and not spec.group else "TERMINATE",
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": str(_google_s(left))},
    }


def _google_s(left: int) -> int:
    """Return the seconds of running after which Google deletes a machine that is to end `left` seconds from
    now.

    Google counts from when the machine runs, half a minute from now. A machine that powers itself off at the
    deadline keeps its disk, which costs money, and Google's timer may have stopped. So Google's deletion
    comes EARLIER_S before the deadline, unless that is less than LONG_S away.
    """
    return left - EARLIER_S if left >= LONG_S else left


def _migrates(offer: Offer) -> bool:
    """Return whether Google may migrate the machine to another host: not with a GPU, and not as spot."""
    bound = offer.spot or offer.accelerator is not None or _family(offer) in _NEVER_MIGRATE
    return not bound and not re.search(r"metal|lssd", offer.instance_type)


def _metadata(spec: MachineSpec, image: Image, login: Login | None) -> dict[str, str]:
    gpu = bool(spec.offer.accelerator)
    notes = {
        NOTE_PRICE: repr(float(spec.offer.price)),
        NOTE_DEADLINE: spec.deadline.isoformat(),
        NOTE_IMAGE: image.path,
    }
    return {
        "enable-guest-attributes": "TRUE",
        "block-project-ssh-keys": "TRUE",
        **_access(spec, login),
        "startup-script": startup_script(
            spec.user_data,
            gpu=gpu,
            mark=f"{machine_name(spec)} {spec.deadline.isoformat()}",
            user=login.user if login else USER,
        ),
        **({"install-nvidia-driver": "True"} if gpu else {}),
        **notes,
    }


def _access(spec: MachineSpec, login: Login | None) -> dict[str, str]:
    if login:
        return {"enable-oslogin": "TRUE", NOTE_USER: login.user, NOTE_KEY: login.fingerprint}
    # If the project uses OS Login, keys in metadata have no effect.
    return {"enable-oslogin": "FALSE", "ssh-keys": f"{USER}:{spec.ssh_public_key.strip()}"}


def _items(values: Mapping[str, str]) -> list[Json]:
    return [{"key": key, "value": value} for key, value in values.items()]
