"""Google's real clients of Compute Engine, led to the emulated one, and sound bodies to send."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

from tests.clouds.gcp import Cloud

PROJECT = "orch-test"
ZONE = "us-central1-a"
DLVM = "projects/deeplearning-platform-release/global/images/family/common-cu129-ubuntu-2204-nvidia-580"
UBUNTU = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
ARM = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-arm64"

Body = dict[str, Any]


class Google:
    """The real clients, led to the emulator."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        options = {
            "credentials": AnonymousCredentials(),
            "client_options": ClientOptions(api_endpoint=cloud.url),
            "transport": "rest",
        }
        self.instances = compute_v1.InstancesClient(**options)
        self.operations = compute_v1.ZoneOperationsClient(**options)
        self.disks = compute_v1.DisksClient(**options)
        self.images = compute_v1.ImagesClient(**options)
        self.regions = compute_v1.RegionsClient(**options)
        self.zones = compute_v1.ZonesClient(**options)
        self.projects = compute_v1.ProjectsClient(**options)
        self.machine_types = compute_v1.MachineTypesClient(**options)
        self.accelerator_types = compute_v1.AcceleratorTypesClient(**options)

    def insert(self, body: Body, request_id: str = "", zone: str = ZONE) -> Any:
        asked = compute_v1.Instance.from_json(json.dumps(body))
        request = compute_v1.InsertInstanceRequest(project=PROJECT, zone=zone, instance_resource=asked)
        if request_id:
            request.request_id = request_id
        return self.instances.insert_unary(request=request, retry=None)

    def wait(self, operation: Any, zone: str = ZONE) -> Any:
        return self.operations.wait(project=PROJECT, zone=zone, operation=operation.name)

    def get(self, name: str) -> Any:
        return self.instances.get(project=PROJECT, zone=ZONE, instance=name)

    def delete(self, name: str) -> Any:
        return self.wait(self.instances.delete_unary(project=PROJECT, zone=ZONE, instance=name))

    def made(self, body: Body) -> Any:
        done = self.wait(self.insert(body))
        assert not done.error.errors, done.error
        return self.get(body["name"])

    def listed(self, text: str = "", size: int = 500) -> list[str]:
        request = compute_v1.ListInstancesRequest(project=PROJECT, zone=ZONE, filter=text, max_results=size)
        return [instance.name for instance in self.instances.list(request=request)]

    def raw(self, verb: str, path: str, body: object = None) -> tuple[int, Any]:
        """Without a client, which would not send nonsense."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        url = f"{self.cloud.url}/compute/v1/projects/{PROJECT}/{path}"
        request = urllib.request.Request(url, data, headers, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["error"]


def name() -> str:
    return f"vm-{uuid.uuid4().hex[:8]}"


def body(**changed: Any) -> Body:
    """A sound Spot machine with one L4, as a body of instances.insert."""
    disk = {
        "sourceImage": DLVM,
        "diskSizeGb": "100",
        "diskType": f"zones/{ZONE}/diskTypes/pd-balanced",
        "labels": {"orch-lease": "x"},
    }
    sound: Body = {
        "name": name(),
        "machineType": f"zones/{ZONE}/machineTypes/g2-standard-4",
        "labels": {"orch-lease": "x"},
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": disk}],
        "networkInterfaces": [
            {"network": "global/networks/default", "accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}
        ],
        "metadata": {"items": [{"key": "enable-guest-attributes", "value": "TRUE"}]},
        "scheduling": {
            "provisioningModel": "SPOT",
            "automaticRestart": False,
            "onHostMaintenance": "TERMINATE",
            "instanceTerminationAction": "DELETE",
            "maxRunDuration": {"seconds": "3600"},
        },
    }
    return {**sound, **changed}


def plain(**changed: Any) -> Body:
    """A sound CPU machine, not Spot and without a deadline."""
    sound: Body = {
        "machineType": f"zones/{ZONE}/machineTypes/e2-standard-2",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": UBUNTU}}],
        "scheduling": {},
    }
    return body(**{**sound, **changed})


def scheduled(**changed: Any) -> Body:
    return body(scheduling={**body()["scheduling"], **changed})


def disk(base: Callable[..., Body] = body, **changed: Any) -> Body:
    sound = base()
    sound["disks"][0]["initializeParams"].update(changed)
    return sound


def gpu(machine_type: str, kind: str, count: int, zone: str = ZONE, **changed: Any) -> Body:
    accelerator = {"acceleratorType": f"zones/{zone}/acceleratorTypes/{kind}", "acceleratorCount": count}
    return body(
        machineType=f"zones/{ZONE}/machineTypes/{machine_type}", guestAccelerators=[accelerator], **changed
    )


def without(base: Body, field: str) -> Body:
    return {key: value for key, value in base.items() if key != field}
