"""Puts the corrections into moto's EC2 and SSM, inside its process."""

from __future__ import annotations

import functools
from typing import Any

from moto.ec2.models.amis import AmiBackend
from moto.ec2.models.instances import Instance, InstanceBackend
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.ec2.responses.amis import AmisResponse
from moto.ec2.responses.elastic_block_store import ElasticBlockStore
from moto.ec2.responses.general import General
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.spot_instances import SpotInstances
from moto.ec2.utils import filter_dict_attribute_mapping
from moto.ssm.models import ParameterDict

from tests.clouds.aws import baked, endings, goods, launch


@functools.cache
def apply() -> None:
    """Put every correction in place; once, before any request."""
    for owner, name, correct in (
        (InstanceResponse, "run_instances", launch.run_instances),
        (InstanceResponse, "terminate_instances", endings.terminate_instances),
        (InstanceResponse, "stop_instances", endings.stop_instances),
        (InstanceResponse, "start_instances", endings.start_instances),
        (InstanceResponse, "_parse_block_device_mapping", lambda _: []),
        (InstanceBackend, "all_reservations", endings.all_reservations(InstanceBackend.all_reservations)),
        (
            InstanceBackend,
            "get_multi_instances_by_id",
            endings.checked(InstanceBackend.get_multi_instances_by_id),
        ),
        (
            InstanceBackend,
            "get_reservations_by_instance_ids",
            endings.checked(InstanceBackend.get_reservations_by_instance_ids),
        ),
        (General, "get_console_output", endings.get_console_output),
        (SpotInstances, "describe_spot_price_history", goods.describe_spot_price_history),
        (AmiBackend, "_load_amis", goods.load_amis),
        (AmiBackend, "deregister_image", baked.deregister_image(AmiBackend.deregister_image)),
        (AmisResponse, "create_image", baked.create_image),
        (ElasticBlockStore, "describe_snapshots", baked.owned(ElasticBlockStore.describe_snapshots)),
        (
            SecurityGroupBackend,
            "delete_security_group",
            goods.kept_while_used(SecurityGroupBackend.delete_security_group),
        ),
        (ParameterDict, "_check_loading_status", goods.load_parameters),
    ):
        setattr(owner, name, correct)
    for name, attribute in (
        ("client-token", "client_token"),
        ("instance-lifecycle", "lifecycle"),
        ("spot-instance-request-id", "spot_instance_request_id"),
        ("reservation-id", "reservation_id"),
        ("instance-state-code", "state_code"),
    ):
        filter_dict_attribute_mapping.setdefault(name, attribute)
    filter_dict_attribute_mapping["instance.group-id"] = "group_ids_now"
    setattr(Instance, "group_ids_now", property(_group_ids))  # noqa: B010
    setattr(Instance, "instance_lifecycle", property(lambda self: self.lifecycle))  # noqa: B010
    setattr(Instance, "spot_instance_request_id", None)  # noqa: B010


def _group_ids(instance: Any) -> list[str]:
    """Those of its interfaces as they are now; moto knows those with which it was launched."""
    return [group.id for nic in instance.nics.values() for group in nic.group_set]
