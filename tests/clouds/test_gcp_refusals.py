"""The emulated Compute Engine refuses what Google refuses, and names the field."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("google.cloud.compute_v1")
pytest.importorskip("googleapiclient")

from google.api_core import exceptions

from tests.clouds.gcp_client import (
    ARM,
    DLVM,
    ZONE,
    Body,
    Google,
    body,
    disk,
    gpu,
    plain,
    scheduled,
    without,
)

REFUSED: dict[str, tuple[Body, str, str]] = {
    "no name": (without(body(), "name"), "required", "resource.name"),
    "no machine type": (without(body(), "machineType"), "required", "resource.machineType"),
    "bad name": (body(name="BAD_Name"), "invalid", "resource.name"),
    "name with a bad end": (body(name="vm-"), "invalid", "resource.name"),
    "unknown type": (
        body(machineType=f"zones/{ZONE}/machineTypes/g2-standard-5"),
        "invalid",
        "Machine type with name 'g2-standard-5' does not exist in zone 'us-central1-a'",
    ),
    "type of another zone": (
        body(machineType="zones/us-central1-b/machineTypes/g2-standard-4"),
        "invalid",
        "resource.machineType",
    ),
    "type by bare name": (body(machineType="g2-standard-4"), "invalid", "URL is malformed"),
    "spot restarts": (scheduled(automaticRestart=True), "badRequest", "AutomaticRestart"),
    "spot migrates": (scheduled(onHostMaintenance="MIGRATE"), "badRequest", "OnHostMaintenance"),
    "preemptible restarts": (
        plain(scheduling={"preemptible": True, "automaticRestart": True}),
        "badRequest",
        "AutomaticRestart",
    ),
    "spot and not preemptible": (scheduled(preemptible=False), "badRequest", "provisioningModel"),
    "GPU that migrates": (
        body(scheduling={"onHostMaintenance": "MIGRATE"}),
        "badRequest",
        "do not support live migration",
    ),
    "GPU without a policy": (body(scheduling={}), "badRequest", "do not support live migration"),
    "attached GPU without a policy": (
        gpu("n1-standard-4", "nvidia-tesla-t4", 1, scheduling={}),
        "badRequest",
        "do not support live migration",
    ),
    "deadline without an action": (
        plain(scheduling={"maxRunDuration": {"seconds": "60"}}),
        "badRequest",
        "instanceTerminationAction",
    ),
    "action without a reason": (
        plain(scheduling={"instanceTerminationAction": "DELETE"}),
        "badRequest",
        "instanceTerminationAction",
    ),
    "deadline too soon": (scheduled(maxRunDuration={"seconds": "29"}), "invalid", "maxRunDuration"),
    "deadline too late": (scheduled(maxRunDuration={"seconds": "10368001"}), "invalid", "maxRunDuration"),
    "two deadlines": (
        scheduled(terminationTime="2099-01-01T00:00:00Z"),
        "badRequest",
        "Only one of maxRunDuration",
    ),
    "GPU type unknown": (gpu("n1-standard-4", "nvidia-tesla-t5", 1), "notFound", "nvidia-tesla-t5"),
    "GPU that n1 lacks": (gpu("n1-standard-4", "nvidia-l4", 1), "badRequest", "not compatible"),
    "GPU not in this zone": (
        body(
            machineType="zones/us-east1-b/machineTypes/n1-standard-4",
            guestAccelerators=[
                {
                    "acceleratorType": "zones/us-east1-b/acceleratorTypes/nvidia-tesla-t4",
                    "acceleratorCount": 1,
                }
            ],
        ),
        "notFound",
        "zones/us-east1-b/acceleratorTypes/nvidia-tesla-t4",
    ),
    "GPU of another zone": (
        gpu("n1-standard-4", "nvidia-tesla-t4", 1, zone="us-central1-b"),
        "invalid",
        "acceleratorType",
    ),
    "three T4s": (gpu("n1-standard-4", "nvidia-tesla-t4", 3), "invalid", "acceleratorCount"),
    "GPU on a type that has none": (
        gpu("e2-standard-4", "nvidia-tesla-t4", 1),
        "badRequest",
        "not compatible",
    ),
    "another GPU on g2": (gpu("g2-standard-4", "nvidia-tesla-t4", 1), "badRequest", "nvidia-l4"),
    "two GPUs on g2-standard-4": (gpu("g2-standard-4", "nvidia-l4", 2), "badRequest", "comes with 1"),
    "disk too small": (disk(diskSizeGb="49"), "invalid", "smaller than the image size"),
    "image family unknown": (disk(sourceImage=DLVM + "9"), "invalid", "image resource cannot be found"),
    "image of another architecture": (disk(sourceImage=ARM), "invalid", "architecture"),
    "disk type unknown": (disk(diskType=f"zones/{ZONE}/diskTypes/pd-fast"), "notFound", "pd-fast"),
    "disk type that g2 lacks": (
        disk(diskType=f"zones/{ZONE}/diskTypes/hyperdisk-balanced"),
        "invalid",
        "cannot be used by g2-standard-4",
    ),
    "no disk": (without(body(), "disks"), "invalid", "resource.disks"),
    "no network": (without(body(), "networkInterfaces"), "invalid", "network interface is required"),
    "network unknown": (
        body(networkInterfaces=[{"network": "global/networks/nowhere"}]),
        "invalid",
        "network resource cannot be found",
    ),
    "label value": (body(labels={"owner": "Me@home"}), "invalid", "Label value 'Me@home'"),
    "label key": (body(labels={"Owner": "me"}), "invalid", "Label key 'Owner'"),
    "label of a disk": (disk(labels={"owner": "x" * 64}), "invalid", "initializeParams.labels"),
    "metadata too large": (
        body(metadata={"items": [{"key": "user-data", "value": "x" * (256 * 1024 + 1)}]}),
        "invalid",
        "too large",
    ),
    "metadata twice": (
        body(metadata={"items": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}),
        "invalid",
        "duplicate keys",
    ),
    "account without scopes": (body(serviceAccounts=[{"email": "default"}]), "invalid", "scopes"),
    "scope unknown": (
        body(serviceAccounts=[{"email": "default", "scopes": ["cloud-platform"]}]),
        "invalid",
        "scope",
    ),
    "tag": (body(tags={"items": ["Not_a_tag"]}), "invalid", "tags.items"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_insert_refuses(google: Google, case: str) -> None:
    asked, reason, text = REFUSED[case]
    zone = "us-east1-b" if "us-east1-b" in text else ZONE
    asked = json.loads(json.dumps(asked).replace(f"zones/{ZONE}/disk", f"zones/{zone}/disk"))
    with pytest.raises(exceptions.ClientError) as refused:
        google.insert(asked, zone=zone)
    assert refused.value.errors[0]["reason"] == reason
    assert text in refused.value.message
    assert asked.get("name") not in [one["name"] for one in google.cloud.state()["instances"]]


@pytest.mark.parametrize(
    "asked",
    [
        plain(scheduling={"onHostMaintenance": "MIGRATE", "automaticRestart": True}),
        plain(scheduling={"maxRunDuration": {"seconds": "30"}, "instanceTerminationAction": "STOP"}),
        gpu("n1-standard-4", "nvidia-tesla-t4", 1),
        gpu("g2-standard-4", "nvidia-l4", 1),
        body(machineType=f"zones/{ZONE}/machineTypes/a2-highgpu-1g"),
        plain(machineType=f"zones/{ZONE}/machineTypes/n2-custom-4-8192"),
        disk(lambda: plain(machineType=f"zones/{ZONE}/machineTypes/t2a-standard-1"), sourceImage=ARM),
        plain(
            serviceAccounts=[
                {"email": "default", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
            ]
        ),
    ],
    ids=["migrates", "stops", "t4", "l4", "a100", "custom", "arm", "account"],
)
def test_insert_accepts(google: Google, asked: Body) -> None:
    assert google.made(asked).status == "RUNNING"
    google.delete(asked["name"])


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"color": "blue"}, 'Unknown name "color"'),
        ({"scheduling": {"spot": True}}, "Unknown name \"spot\" at 'scheduling'"),
        ({"scheduling": {"provisioningModel": "CHEAP"}}, "scheduling.provisioningModel"),
        ({"scheduling": {"automaticRestart": "no"}}, "scheduling.automaticRestart"),
        ({"labels": {"n": 1}}, "labels.n"),
        ({"disks": {"boot": True}}, "disks"),
        ({"scheduling": {"maxRunDuration": {"seconds": "an hour"}}}, "maxRunDuration.seconds"),
        ({"scheduling": {"maxRunDuration": "3600s"}}, "maxRunDuration"),
    ],
)
def test_the_schema_refuses(google: Google, changed: Body, text: str) -> None:
    status, error = google.raw("POST", f"zones/{ZONE}/instances", body(**changed))
    assert status == 400
    assert error["errors"][0]["reason"] in ("invalid", "badRequest")
    assert text in error["message"]


def test_unknown_parameters_zones_methods_and_projects_are_refused(google: Google) -> None:
    assert google.raw("GET", f"zones/{ZONE}/instances?colour=blue")[0] == 400
    assert google.raw("GET", f"zones/{ZONE}/instances?maxResults=many")[0] == 400
    assert google.raw("GET", f"zones/{ZONE}/instances?maxResults=501")[0] == 400
    assert google.raw("GET", f"zones/{ZONE}/instances?pageToken=nonsense")[0] == 400
    assert google.raw("GET", "zones/atlantis1-a/instances")[0] == 400
    assert google.raw("POST", f"zones/{ZONE}/instances/bulkInsert", {})[0] == 501
    assert google.raw("GET", "no/such/thing")[0] == 404
    with pytest.raises(exceptions.NotFound):
        google.instances.list(project="another", zone=ZONE)
