"""Seeing, stopping and ending instances as AWS does it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from moto.core.responses import ActionResult
from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError
from moto.ec2.utils import filter_reservations

from tests.clouds.aws.life import LIVES


def all_reservations(original: Any) -> Any:
    def corrected(self: Any, filters: Any = None) -> Any:
        for reservation in list(self.reservations.values()):
            lives = [LIVES.get(instance.id) for instance in reservation.instances]
            if lives and all(life is not None and not life.listed for life in lives):
                self.reservations.pop(reservation.id, None)
        seen = []
        for reservation in original(self, None):
            visible = [
                one for one in reservation.instances if (life := LIVES.get(one.id)) is None or life.visible
            ]
            if visible:
                reservation.instances = visible
                seen.append(reservation)
        if filters is None:
            return seen
        return filter_reservations(seen, filters)

    return corrected


def checked(original: Any) -> Any:
    """Refuses ids that are none, and names those that are not there as AWS does."""

    def corrected(self: Any, instance_ids: Sequence[str], filters: Any = None) -> Any:
        for identity in instance_ids:
            if not re.fullmatch(r"i-([0-9a-f]{8}|[0-9a-f]{17})", identity):
                raise EC2ClientError("InvalidInstanceID.Malformed", f'Invalid id: "{identity}"')
        known = {instance.id for reservation in self.all_reservations() for instance in reservation.instances}
        absent = [identity for identity in instance_ids if identity not in known]
        if absent:
            raise InvalidInstanceIdError(absent if len(absent) > 1 else absent[0])
        return original(self, list(dict.fromkeys(instance_ids)), filters=filters)

    return corrected


def terminate_instances(self: Any) -> ActionResult:
    chosen = self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", []))
    self.error_on_dryrun()
    for instance in chosen:
        if instance.disable_api_termination is True:
            raise EC2ClientError(
                "OperationNotPermitted",
                f"The instance '{instance.id}' may not be terminated. Modify its 'disableApiTermination' "
                "instance attribute and try again.",
            )
    before = {instance.id: _state(instance) for instance in chosen}
    for instance in chosen:
        life = LIVES.get(instance.id)
        if life is not None:
            LIVES.terminate(life, "Client.UserInitiatedShutdown", "User initiated shutdown")
    return _changes("TerminatingInstances", chosen, before)


def stop_instances(self: Any) -> ActionResult:
    chosen = self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", []))
    self.error_on_dryrun()
    for instance in chosen:
        if instance.lifecycle == "spot":
            raise EC2ClientError(
                "UnsupportedOperation",
                f"You can't stop the Spot Instance '{instance.id}' because it is associated with a one-time "
                "Spot Instance request. You can only stop Spot Instances associated with persistent "
                "Spot Instance requests.",
            )
        if instance.state in ("terminated", "shutting-down", "pending"):
            raise _wrong_state(instance)
    before = {instance.id: _state(instance) for instance in chosen}
    for instance in chosen:
        life = LIVES.get(instance.id)
        if life is not None:
            LIVES.stop(life, "Client.UserInitiatedShutdown", "User initiated shutdown")
    return _changes("StoppingInstances", chosen, before)


def start_instances(self: Any) -> ActionResult:
    """Refused: the disk of a stopped machine is not kept by this test cloud."""
    for instance in self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", [])):
        if instance.state != "stopped":
            raise _wrong_state(instance)
    raise EC2ClientError("UnsupportedOperation", "This test cloud starts no stopped instance again.")


def _wrong_state(instance: Any) -> EC2ClientError:
    return EC2ClientError(
        "IncorrectInstanceState",
        f"This instance '{instance.id}' is not in a state from which it can be stopped or started.",
    )


def _state(instance: Any) -> dict[str, Any]:
    return {"Code": instance.state_code, "Name": instance.state}


def _changes(name: str, chosen: Sequence[Any], before: Mapping[str, Mapping[str, Any]]) -> ActionResult:
    changes = [
        {"InstanceId": one.id, "CurrentState": _state(one), "PreviousState": before[one.id]} for one in chosen
    ]
    return ActionResult({name: changes})


def get_console_output(self: Any) -> ActionResult:
    instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
    life = LIVES.get(instance.id)
    text = LIVES.console(life).decode(errors="replace")[-65536:] if life is not None else ""
    result: dict[str, Any] = {"InstanceId": instance.id, "Timestamp": utcnow()}
    if text:
        result["Output"] = Base64EncodedString.from_raw_string(text.replace("\n", "\r\n"))
    return ActionResult(result)
