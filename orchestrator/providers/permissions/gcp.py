"""The permissions of Google Cloud, and the services that must be enabled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .kinds import OUR_NAMES, Api, Grant, Permission, uses

COMPUTE = "compute.googleapis.com"
RESOURCE_MANAGER = "cloudresourcemanager.googleapis.com"
BILLING = "cloudbilling.googleapis.com"
IAP = "iap.googleapis.com"


def _gcp(name: str, why: str, needed: str, calls: str = "", **more: Any) -> Permission:
    """Return a permission. `calls`: without the leading "compute." where it applies."""
    whole = (
        call if call.startswith("cloudresourcemanager.") else f"compute.{call}" for call in calls.split()
    )
    return Permission("gcp", name, why, uses(needed), tuple(whole), more.pop("api", COMPUTE), **more)


_OUR_MACHINES = (Grant((f"projects/{{project}}/zones/*/instances/{OUR_NAMES}*",)),)
_OUR_DISKS = (Grant((f"projects/{{project}}/zones/*/disks/{OUR_NAMES}*",)),)
_OUR_RULES = (Grant((f"projects/{{project}}/global/firewalls/{OUR_NAMES}group-*",)),)
_SEVERAL = "several machines train one model (resources.nodes)"
_SUBNETWORKS = (Grant(("projects/{project}/regions/*/subnetworks/*",)),)
IDENTITY = "the profile names an identity"
"""terraform/ does not grant this: a machine gets an identity only if the profile names one, and an
administrator permits it.
"""

OWN_IMAGE = "orch made the image, or the profile names one of a project that is not public"
_IMAGES: Mapping[str, Any] = {
    "when": "orch image bake makes and deletes images",
    "instead": "orch image makes and deletes no images",
}
_OWN_IMAGES = (Grant(("projects/{project}/global/images/*",)),)
_OUR_IMAGES = (Grant((f"projects/{{project}}/global/images/{OUR_NAMES}*",)),)

PERMISSIONS = (
    _gcp(
        "compute.instances.list",
        "find machines, and confirm that they are gone",
        "machines",
        "instances.aggregatedList",
    ),
    _gcp("compute.instances.get", "read a machine", "machines", "instances.get", grants=_OUR_MACHINES),
    _gcp(
        "compute.instances.create", "create a machine", "machines", "instances.insert", grants=_OUR_MACHINES
    ),
    _gcp(
        "compute.instances.setMetadata",
        "give a machine its key, its deadline and its first-boot script",
        "machines",
        "instances.insert",
        grants=_OUR_MACHINES,
    ),
    _gcp(
        "compute.instances.setLabels",
        "label it in the create call",
        "machines",
        "instances.insert",
        grants=_OUR_MACHINES,
    ),
    _gcp(
        "compute.instances.setTags",
        "tag it for the firewall in the create call",
        "machines",
        "instances.insert",
        grants=_OUR_MACHINES,
    ),
    _gcp("compute.disks.create", "create its disk", "machines", "instances.insert", grants=_OUR_DISKS),
    _gcp(
        "compute.disks.setLabels",
        "label its disk in the create call",
        "machines",
        "instances.insert",
        grants=_OUR_DISKS,
    ),
    _gcp(
        "compute.subnetworks.use",
        "connect it to the network",
        "machines",
        "instances.insert",
        grants=_SUBNETWORKS,
    ),
    _gcp(
        "compute.subnetworks.useExternalIp",
        "give it a public address",
        "machines",
        "instances.insert",
        grants=_SUBNETWORKS,
        when="ORCH_GCP_INTERNAL is neither 1 nor iap",
        setting=("ORCH_GCP_INTERNAL", "0?"),
    ),
    _gcp(
        "compute.instances.setServiceAccount",
        "give a machine the service account that the profile names",
        "machines",
        "instances.insert",
        grants=_OUR_MACHINES,
        when=IDENTITY,
    ),
    _gcp(
        "iam.serviceAccounts.actAs",
        "let the machine act as that service account",
        "machines",
        "instances.insert",
        when=IDENTITY,
    ),
    _gcp(
        "compute.instances.delete", "delete a machine", "machines", "instances.delete", grants=_OUR_MACHINES
    ),
    _gcp(
        "compute.instances.getGuestAttributes",
        "read a machine's host keys",
        "machines",
        "instances.getGuestAttributes",
        grants=_OUR_MACHINES,
    ),
    _gcp("compute.zoneOperations.get", "follow operations", "machines", "zoneOperations.get"),
    _gcp("compute.zoneOperations.list", "find out how a machine ended", "machines", "zoneOperations.list"),
    _gcp(
        "iap.tunnelInstances.accessViaIAP",
        "reach a machine without a public address",
        "machines",
        api=IAP,
        grants=(Grant(("projects/{project}/iap_tunnel/zones/*/instances/*",)),),
        when="ORCH_GCP_INTERNAL=iap",
        setting=("ORCH_GCP_INTERNAL", "iap"),
        program="start-iap-tunnel",
    ),
    *(
        _gcp(
            f"compute.firewalls.{verb}",
            f"{does} the firewall rule through which machines that train one model connect to each other",
            "machines",
            f"firewalls.{method}",
            grants=_OUR_RULES,
            when=_SEVERAL,
        )
        for verb, method, does in (
            ("get", "get", "look at"),
            ("create", "insert", "make"),
            ("update", "patch", "change"),
            ("delete", "delete", "remove"),
        )
    ),
    _gcp(
        "compute.networks.updatePolicy",
        "apply that rule to their network",
        "machines",
        "firewalls.insert firewalls.patch firewalls.delete",
        grants=(Grant(("projects/{project}/global/networks/*",)),),
        when=_SEVERAL,
    ),
    _gcp(
        "compute.globalOperations.get",
        "confirm that the rule is in force, and that an image is stored",
        "machines",
        "globalOperations.get",
        when=f"{_SEVERAL}, or {_IMAGES['when']}",
    ),
    *(
        _gcp(
            f"compute.resourcePolicies.{verb}",
            f"{does} the policy that places the machines of one model close together",
            "machines",
            calls,
            when=_SEVERAL,
            instead="" if verb == "delete" else "the machines of one model are not placed close together",
        )
        for verb, calls, does in (
            ("get", "resourcePolicies.get", "look at"),
            ("create", "resourcePolicies.insert", "make"),
            ("use", "instances.insert", "make a machine with"),
            ("list", "resourcePolicies.aggregatedList", "find"),
            ("delete", "resourcePolicies.delete", "remove"),
        )
    ),
    _gcp(
        "compute.regionOperations.get",
        "see that the policy is made, or removed",
        "machines",
        "regionOperations.get",
        when=_SEVERAL,
    ),
    _gcp("compute.zones.list", "list the zones", "machines", "zones.list"),
    _gcp("compute.machineTypes.get", "read whether a zone has a type", "machines", "machineTypes.get"),
    _gcp(
        "compute.acceleratorTypes.get",
        "read whether a zone has the GPU to attach",
        "machines",
        "acceleratorTypes.get",
    ),
    _gcp("compute.regions.get", "read limit and usage of a quota", "machines doctor", "regions.get"),
    _gcp(
        "compute.images.getFromFamily",
        "find a family's newest image",
        "machines",
        "images.getFromFamily",
        grants=_OWN_IMAGES,
        when=OWN_IMAGE,
    ),
    _gcp("compute.images.get", "find an image", "machines", "images.get", grants=_OWN_IMAGES, when=OWN_IMAGE),
    _gcp(
        "compute.images.useReadOnly",
        "create a disk from an image",
        "machines",
        "instances.insert",
        grants=_OWN_IMAGES,
        when=OWN_IMAGE,
    ),
    _gcp(
        "compute.images.list",
        "find the images that orch made",
        "machines",
        "images.list",
        instead="images are not looked for, and every package is installed",
    ),
    _gcp(
        "compute.instances.stop",
        "stop a machine before an image is made of it",
        "machines",
        "instances.stop",
        grants=_OUR_MACHINES,
        **_IMAGES,
    ),
    _gcp(
        "compute.disks.useReadOnly",
        "make an image of its disk",
        "machines",
        "images.insert",
        grants=_OUR_DISKS,
        **_IMAGES,
    ),
    *(
        _gcp(f"compute.images.{verb}", why, "machines", f"images.{method}", grants=_OUR_IMAGES, **_IMAGES)
        for verb, method, why in (
            ("create", "insert", "store an image"),
            ("setLabels", "insert", "label it as it is made"),
            ("delete", "delete", "delete an image"),
        )
    ),
    _gcp("compute.machineTypes.list", "update the catalog's types", "catalog", "machineTypes.aggregatedList"),
    _gcp(
        "compute.acceleratorTypes.list",
        "update the catalog's GPUs",
        "catalog",
        "acceleratorTypes.aggregatedList",
    ),
    _gcp("compute.projects.get", "read the project's quotas", "doctor", "projects.get"),
    _gcp("compute.subnetworks.get", "check that the named subnetwork exists", "doctor", "subnetworks.get"),
    _gcp("compute.networks.get", "check that the network exists", "doctor", "networks.get"),
    _gcp(
        "compute.firewalls.list",
        "check that a rule admits ssh, and which machines are in a group already",
        "machines doctor",
        "firewalls.list",
    ),
    _gcp(
        "orgpolicy.policy.get",
        "check whether an organisation forbids public addresses or guest attributes",
        "doctor",
        "cloudresourcemanager.projects.getEffectiveOrgPolicy",
        api=RESOURCE_MANAGER,
    ),
)

APIS = (
    Api(COMPUTE, "machines", uses("machines catalog doctor")),
    Api(
        RESOURCE_MANAGER,
        "list the caller's permissions",
        uses("doctor"),
        ("cloudresourcemanager.projects.testIamPermissions",),
    ),
    Api(IAP, "tunnels to machines without a public address (ORCH_GCP_INTERNAL=iap)", uses("machines")),
    Api(BILLING, "prices", uses("catalog"), ("cloudbilling.services.skus.list",)),
)
