"""Convert EC2's descriptions of instances, and the tags of orch's machines. Pure.

Labels become tags unchanged. Further tags of the same create call:

orch-machine      name of the machine: the spec's id and attempt. Resources with this tag belong to orch.
orch-deadline     seconds since 1970
orch-price        US dollars an hour, as offered
orch-login        the user who logs in
orch-host-key     the public host key: "type base64"; orch-host-key-next beside it during a change
orch-proof        the key's origin: injected, console, or renewed (created there, over a verified connection)
orch-image        name of an image that was created from a machine; on it and on its snapshots
Name              as the console shows it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Labels, Machine, MachineSpec, MachineState
from orchestrator.providers import clock
from orchestrator.providers.aws import confine
from orchestrator.providers.aws.firstboot import base_of

MACHINE = "orch-machine"
DEADLINE = "orch-deadline"
PRICE = "orch-price"
LOGIN = "orch-login"
HOST_KEY = "orch-host-key"
NEXT_KEY = "orch-host-key-next"
PROOF = "orch-proof"
IMAGE = "orch-image"
OURS = (MACHINE, DEADLINE, PRICE, LOGIN, HOST_KEY, NEXT_KEY, PROOF, "Name")

INJECTED, CONSOLE, RENEWED = "injected", "console", "renewed"

GROUP_PREFIX = "orch-group-"
"""The beginning of the name of every security group and placement group of several machines."""

MOST = 50
"""Maximum number of tags of one resource."""

_STATES = {
    "pending": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "stopping": MachineState.STOPPING,
    "shutting-down": MachineState.STOPPING,
    "stopped": MachineState.STOPPED,
}
EXISTING = tuple(_STATES)
_KEY = re.compile(r"[\w +\-=.:/@]{1,128}\Z")
_VALUE = re.compile(r"[\w +\-=.:/@]{0,256}\Z")


def name_of(spec: MachineSpec) -> str:
    return f"{spec.id}-{spec.attempt}"


def placement_group(group: str, zone: str) -> str:
    """Return the name of the placement group in which the machines of `group` in this zone are."""
    return f"{GROUP_PREFIX}{group}-{zone}"


def tags_of(spec: MachineSpec, *, user: str, proof: str, host_key: str) -> dict[str, str]:
    """Return every tag of the machine. Raises ProviderError(INVALID) for one that EC2 would refuse."""
    name = name_of(spec)
    tags = {
        **spec.own_labels,
        **spec.labels,
        "Name": name,
        MACHINE: name,
        DEADLINE: str(int(spec.deadline.timestamp())),
        PRICE: repr(spec.offer.price),
        LOGIN: user,
        PROOF: proof,
    }
    if host_key:
        tags[HOST_KEY] = host_key
    for key, value in tags.items():
        _require_tag(key, value, {**spec.own_labels, **spec.labels})
    if len(tags) > MOST:
        raise ProviderError(
            Fault.INVALID,
            f"The machine would have {len(tags)} tags; EC2 allows {MOST}.",
            code="TagLimitExceeded",
        )
    return tags


def _require_tag(key: str, value: str, labels: Labels) -> None:
    reserved = (key in OURS and key in labels) or key.lower().startswith("aws:")
    if reserved or not _KEY.match(key) or not _VALUE.match(value):
        raise ProviderError(
            Fault.INVALID, f"The label {key}={value!r} cannot be a tag of EC2.", code="InvalidTagKey"
        )


def filters(labels: Labels) -> list[dict[str, Any]]:
    """Return the DescribeInstances filters for existing machines of orch with all of `labels`."""
    return [
        {"Name": "tag-key", "Values": [MACHINE]},
        {"Name": "instance-state-name", "Values": list(EXISTING)},
        *({"Name": f"tag:{key}", "Values": [literal(value)]} for key, value in labels.items()),
    ]


def literal(value: str) -> str:
    """Escape `*` and `?`, which are wildcards in filters."""
    return re.sub(r"([*?\\])", r"\\\1", value)


def tags_in(instance: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}


def exists(instance: Mapping[str, Any]) -> bool:
    return instance["State"]["Name"] in _STATES


def is_ending(instance: Mapping[str, Any]) -> bool:
    return instance["State"]["Name"] in ("shutting-down", "terminated")


def machine(instance: Mapping[str, Any], region: str, now: datetime | None = None) -> Machine:
    """Return an existing instance as a Machine. `now`: the time of the answer by the clock of EC2."""
    tags = tags_in(instance)
    user = tags.get(LOGIN, "root")
    launched = _aware(instance["LaunchTime"])
    return Machine(
        provider="aws",
        id=instance["InstanceId"],
        name=tags.get(MACHINE, instance["InstanceId"]),
        state=_STATES[instance["State"]["Name"]],
        labels={key: value for key, value in tags.items() if key not in OURS and not key.startswith("aws:")},
        instance_type=instance["InstanceType"],
        zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
        price=_number(tags.get(PRICE)) or 0.0,
        created_at=launched,
        deadline=_time(tags.get(DEADLINE)),
        detail={
            "region": region,
            "base": base_of(user),
            "user": user,
            "power_off": [] if user == "root" else ["sudo", "-n", "poweroff"],
            "confine": [] if user == "root" else list(confine.COMMAND),
            "host_key": tags.get(PROOF, ""),
            "image": instance.get("ImageId"),
            "address": instance.get("PublicIpAddress") or instance.get("PrivateIpAddress"),
            "spot": instance.get("InstanceLifecycle") == "spot",
        },
        age=clock.age(launched, now),
    )


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _time(text: str | None) -> datetime | None:
    seconds = _number(text)
    return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None


_PASSING_SESSION = re.compile(
    r":assumed-role/[^/]+/(botocore-session-\d+|aws-[a-z-]*sdk-.*|\d+|i-[0-9a-f]+)$"
)


def lasting_principal(arn: str) -> str:
    """Return the caller's ARN; "" for a session with a generated name, which is different each time."""
    return "" if _PASSING_SESSION.search(arn) else arn
