"""The methods of Compute Engine that are emulated, by their ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.clouds.gcp import firewalls, images, placements, sold, things
from tests.clouds.gcp.call import Call
from tests.clouds.gcp.errors import Json

CALLS: Mapping[str, Callable[[Call], Json]] = {
    f"compute.{name}": function
    for name, function in {
        "instances.insert": things.insert,
        "instances.get": things.get,
        "instances.delete": things.delete,
        "instances.stop": things.stop,
        "instances.list": things.list_instances,
        "instances.aggregatedList": things.aggregated,
        "instances.getSerialPortOutput": things.serial_port,
        "instances.getGuestAttributes": things.guest_attributes,
        "instances.setLabels": things.set_labels,
        "instances.setMetadata": things.set_metadata,
        "disks.list": things.list_disks,
        "disks.get": things.get_disk,
        "disks.delete": things.delete_disk,
        "disks.aggregatedList": things.aggregated_disks,
        "zoneOperations.get": things.get_operation,
        "zoneOperations.wait": things.wait_operation,
        "zoneOperations.list": things.list_operations,
        "zones.get": sold.get_zone,
        "zones.list": sold.list_zones,
        "regions.get": sold.get_region,
        "regions.list": sold.list_regions,
        "machineTypes.get": sold.get_machine_type,
        "machineTypes.list": sold.list_machine_types,
        "machineTypes.aggregatedList": sold.aggregated_machine_types,
        "acceleratorTypes.get": sold.get_accelerator_type,
        "acceleratorTypes.list": sold.list_accelerator_types,
        "acceleratorTypes.aggregatedList": sold.aggregated_accelerator_types,
        "diskTypes.get": sold.get_disk_type,
        "images.getFromFamily": images.from_family,
        "images.get": images.get,
        "images.list": images.list_images,
        "images.insert": images.insert,
        "images.delete": images.delete,
        "projects.get": sold.get_project,
        "networks.get": sold.get_network,
        "subnetworks.get": sold.get_subnetwork,
        "firewalls.list": firewalls.list_rules,
        "firewalls.get": firewalls.get,
        "firewalls.insert": firewalls.insert,
        "firewalls.patch": firewalls.patch,
        "firewalls.delete": firewalls.delete,
        "globalOperations.get": things.get_project_operation,
        "resourcePolicies.aggregatedList": placements.aggregated,
        "resourcePolicies.get": placements.get,
        "resourcePolicies.insert": placements.insert,
        "resourcePolicies.delete": placements.delete,
        "regionOperations.get": things.get_region_operation,
    }.items()
}
