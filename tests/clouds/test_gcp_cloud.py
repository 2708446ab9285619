"""The emulated Compute Engine keeps its promises to Google's own client, and refuses what Google refuses."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

compute_v1 = pytest.importorskip("google.cloud.compute_v1")
pytest.importorskip("googleapiclient")

from google.api_core import exceptions  # noqa: E402
from google.api_core.client_options import ClientOptions  # noqa: E402
from google.auth.credentials import AnonymousCredentials  # noqa: E402

from tests.clouds.gcp import Cloud, running  # noqa: E402

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


@pytest.fixture(scope="module")
def google() -> Iterator[Google]:
    with running(machines=False) as cloud:
        yield Google(cloud)


@pytest.fixture(autouse=True)
def _clean(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "google" in request.fixturenames:
        google: Google = request.getfixturevalue("google")
        google.cloud.clear_faults()
        google.cloud.settings(denied=[], quotas={}, visible_s=0.05)


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


# ------------------------------------------------------------ a life


def test_an_instance_is_made_by_an_operation_and_ends_by_one(google: Google) -> None:
    asked = body()
    accepted = google.insert(asked)
    assert accepted.status == compute_v1.Operation.Status.PENDING
    assert accepted.target_link.endswith(f"/zones/{ZONE}/instances/{asked['name']}")
    seen = set()
    while (
        now := google.operations.get(project=PROJECT, zone=ZONE, operation=accepted.name)
    ).status != 2104194:
        seen.add(compute_v1.Operation.Status(now.status).name)
    assert seen <= {"PENDING", "RUNNING"}
    assert "RUNNING" in seen
    assert not now.error.errors
    made = google.get(asked["name"])
    assert made.status == "RUNNING"
    assert made.network_interfaces[0].access_configs[0].nat_i_p
    assert made.scheduling.preemptible
    assert made.resource_status.scheduling.termination_timestamp
    assert made.guest_accelerators[0].accelerator_type.endswith("nvidia-l4")
    assert google.disks.get(project=PROJECT, zone=ZONE, disk=asked["name"]).labels == {"orch-lease": "x"}
    google.delete(asked["name"])
    with pytest.raises(exceptions.NotFound):
        google.get(asked["name"])
    with pytest.raises(exceptions.NotFound):
        google.disks.get(project=PROJECT, zone=ZONE, disk=asked["name"])


def test_what_is_shown_is_what_the_discovery_document_says(google: Google) -> None:
    from tests.clouds.gcp.discovery import compute

    google.made(body())
    google.made(gpu("n1-standard-4", "nvidia-tesla-t4", 1))
    state = google.cloud.state()
    kinds = {"instances": "Instance", "disks": "Disk", "operations": "Operation"}
    for kind, schema in kinds.items():
        assert state[kind]
        for one in state[kind]:
            compute().check(schema, one)
    for path, schema in {
        f"zones/{ZONE}": "Zone",
        "regions/us-central1": "Region",
        f"zones/{ZONE}/machineTypes/g2-standard-4": "MachineType",
        f"zones/{ZONE}/acceleratorTypes/nvidia-l4": "AcceleratorType",
        f"zones/{ZONE}/instances": "InstanceList",
        "aggregated/instances": "InstanceAggregatedList",
        "aggregated/acceleratorTypes": "AcceleratorTypeAggregatedList",
        "": "Project",
    }.items():
        status, found = google.raw("GET", path.rstrip("/"))
        assert status == 200, found
        compute().check(schema, found)


def test_a_disk_that_is_not_deleted_with_its_instance_stays(google: Google) -> None:
    asked = body()
    asked["disks"][0]["autoDelete"] = False
    google.made(asked)
    with pytest.raises(exceptions.BadRequest, match="already being used"):
        google.disks.delete_unary(project=PROJECT, zone=ZONE, disk=asked["name"])
    google.delete(asked["name"])
    left = google.disks.get(project=PROJECT, zone=ZONE, disk=asked["name"])
    assert not left.users
    with pytest.raises(exceptions.Conflict):
        google.insert(asked)
    google.wait(google.disks.delete_unary(project=PROJECT, zone=ZONE, disk=asked["name"]))
    google.made(asked)


def test_deleted_at_once_it_never_runs(google: Google) -> None:
    asked = plain()
    google.cloud.settings(visible_s=0)
    accepted = google.insert(asked)
    removal = google.instances.delete_unary(project=PROJECT, zone=ZONE, instance=asked["name"])
    seen = set()
    while google.operations.get(project=PROJECT, zone=ZONE, operation=removal.name).status != 2104194:
        seen |= {i["status"] for i in google.cloud.state()["instances"] if i["name"] == asked["name"]}
    assert seen <= {"STOPPING"}
    assert google.wait(accepted).status == 2104194
    assert asked["name"] not in google.listed()


# ------------------------------------------------------------ what is refused


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


# ------------------------------------------------------------ idempotency, failures


def test_one_request_id_is_one_operation(google: Google) -> None:
    asked, request_id = body(), str(uuid.uuid4())
    first = google.insert(asked, request_id)
    again = google.insert(asked, request_id)
    assert first.name == again.name
    assert first.client_operation_id == request_id
    google.wait(first)
    assert google.insert(asked, request_id).name == first.name
    with pytest.raises(exceptions.Conflict) as taken:
        google.insert(asked, str(uuid.uuid4()))
    assert taken.value.errors[0]["reason"] == "alreadyExists"
    for nonsense in ("once", str(uuid.UUID(int=0))):
        with pytest.raises(exceptions.BadRequest, match="requestId"):
            google.insert(body(), nonsense)


@pytest.mark.parametrize("kind", ["stockout", "stockout_details"])
def test_a_stockout_is_accepted_and_fails_later(google: Google, kind: str) -> None:
    google.cloud.faults({"method": "compute.instances.insert", "zone": ZONE, "kind": kind})
    asked = body()
    failed = google.wait(google.insert(asked))
    assert failed.http_error_status_code == 503
    code = {"stockout": "ZONE_RESOURCE_POOL_EXHAUSTED"}.get(kind, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS")
    assert failed.error.errors[0].code == code
    reasons = [detail.error_info.reason for detail in failed.error.errors[0].error_details]
    assert ("resource_availability" in reasons) == (kind == "stockout_details")
    with pytest.raises(exceptions.NotFound):
        google.get(asked["name"])
    assert google.made(asked).status == "RUNNING"


def test_faults_strike_where_and_as_often_as_told(google: Google) -> None:
    elsewhere = {"method": "compute.instances.insert", "zone": "us-central1-b", "kind": "stockout"}
    later = {"method": "compute.instances.get", "kind": "unavailable", "times": 2, "after": 1}
    google.cloud.faults(elsewhere, later)
    made = google.made(body())  # one get
    for _ in range(2):
        with pytest.raises(exceptions.ServiceUnavailable):
            google.instances.get(project=PROJECT, zone=ZONE, instance=made.name, retry=None)
    google.get(made.name)
    assert [fault["zone"] for fault in google.cloud.state()["faults"]] == ["us-central1-b"]


def test_quotas_are_counted_and_named(google: Google) -> None:
    google.cloud.settings(quotas={"PREEMPTIBLE_NVIDIA_L4_GPUS": 0})
    failed = google.wait(google.insert(body()))
    error = failed.error.errors[0]
    assert (error.code, failed.http_error_status_code) == ("QUOTA_EXCEEDED", 403)
    quota = next(detail.quota_info for detail in error.error_details if detail.quota_info.limit_name)
    assert quota.metric_name == "compute.googleapis.com/preemptible_nvidia_l4_gpus"
    assert quota.dimensions["region"] == "us-central1"
    region = google.regions.get(project=PROJECT, region="us-central1")
    limits = {one.metric: one.limit for one in region.quotas}
    assert limits["PREEMPTIBLE_NVIDIA_L4_GPUS"] == 0
    google.cloud.settings(quotas={"GPUS_ALL_REGIONS": 0})
    failed = google.wait(google.insert(body()))
    assert "GPUS_ALL_REGIONS" in failed.error.errors[0].message
    assert {one.metric: one.limit for one in google.projects.get(project=PROJECT).quotas}[
        "GPUS_ALL_REGIONS"
    ] == 0


@pytest.mark.parametrize(
    ("kind", "raised", "reason"),
    [
        ("quota_http", exceptions.Forbidden, "quotaExceeded"),
        ("forbidden", exceptions.Forbidden, "forbidden"),
        ("api_disabled", exceptions.Forbidden, "accessNotConfigured"),
        ("rate_limit", exceptions.Forbidden, "rateLimitExceeded"),
        ("not_found", exceptions.NotFound, "notFound"),
        ("conflict", exceptions.Conflict, "alreadyExists"),
        ("precondition", exceptions.PreconditionFailed, "conditionNotMet"),
        ("too_many", exceptions.TooManyRequests, "rateLimitExceeded"),
        ("unavailable", exceptions.ServiceUnavailable, "backendError"),
        ("stockout_http", exceptions.ServiceUnavailable, "backendError"),
        ("backend", exceptions.InternalServerError, "backendError"),
    ],
)
def test_http_failures_come_as_the_client_knows_them(
    google: Google, kind: str, raised: type[Exception], reason: str
) -> None:
    google.cloud.faults({"method": "compute.instances.insert", "kind": kind})
    asked = body()
    with pytest.raises(raised) as failed:
        google.insert(asked)
    assert isinstance(failed.value, exceptions.GoogleAPICallError)
    assert failed.value.errors[0]["reason"] == reason
    assert asked["name"] not in google.listed()


def test_who_is_not_known_is_told_so(google: Google) -> None:
    google.cloud.faults({"method": "compute.zones.get", "kind": "unauthorized"})
    status, error = google.raw("GET", f"zones/{ZONE}")
    assert (status, error["errors"][0]["reason"]) == (401, "authError")


@pytest.mark.parametrize("kind", ["reset", "unavailable"])
def test_an_answer_can_be_lost_after_the_effect(google: Google, kind: str) -> None:
    google.cloud.faults({"method": "compute.instances.insert", "kind": kind, "after_effect": True})
    asked, request_id = body(), str(uuid.uuid4())
    with pytest.raises(Exception, match=r"(?i)reset|aborted|backend"):
        google.insert(asked, request_id)
    assert not google.wait(google.insert(asked, request_id)).error.errors
    assert google.get(asked["name"]).status == "RUNNING"
    assert (
        len([call for call in google.cloud.calls("compute.instances.insert") if call["body"] == asked]) == 2
    )


def test_what_is_made_is_seen_only_after_a_while(google: Google) -> None:
    google.cloud.settings(visible_s=1.5)
    asked = plain()
    google.wait(google.insert(asked))
    with pytest.raises(exceptions.NotFound):
        google.get(asked["name"])
    assert asked["name"] not in google.listed()
    end = time.monotonic() + 30
    while asked["name"] not in google.listed():
        assert time.monotonic() < end
    assert google.get(asked["name"]).status == "RUNNING"


# ------------------------------------------------------------ lists


def test_lists_are_filtered_and_paged(google: Google) -> None:
    marks = [("red", "1"), ("red", "2"), ("blue", "1")]
    names = [name() for _ in marks]
    for one, (colour, size) in zip(names, marks, strict=True):
        google.made(plain(name=one, labels={"colour": colour, "size": size}))
    a, b, c = names
    for text, expected in {
        "labels.colour=red": {a, b},
        'labels.colour = "red"': {a, b},
        "labels.colour=red AND labels.size=1": {a},
        "(labels.colour=red) (labels.size=2)": {b},
        "(labels.colour=red) AND (labels.size=2)": {b},
        "labels.colour=blue OR labels.size=2": {b, c},
        "labels.colour:* AND NOT labels.size=1": {b},
        "-labels.colour=red labels.size:*": {c},
        f"name eq {a}|{c}": {a, c},
        f"name = {a}": {a},
        "labels.colour=red AND status=TERMINATED": set(),
        "labels.colour:* scheduling.preemptible=false": {a, b, c},
    }.items():
        assert set(google.listed(text)) == expected, text
    assert set(google.listed("labels.colour:*", size=1)) == {a, b, c}
    pages = [
        call
        for call in google.cloud.calls("compute.instances.list")
        if call["query"].get("maxResults") == "1"
    ]
    assert len(pages) == 3
    for nonsense in ("labels.colour", "labels.colour=", "(labels.colour=red", "=red", "a=b c"):
        with pytest.raises(exceptions.BadRequest, match="filter"):
            google.listed(nonsense)


def test_the_aggregated_list_warns_of_empty_scopes(google: Google) -> None:
    made = google.made(plain(labels={"only": "here"}))
    request = compute_v1.AggregatedListInstancesRequest(project=PROJECT, filter="labels.only=here")
    scopes = dict(google.instances.aggregated_list(request=request))
    assert [one.name for one in scopes[f"zones/{ZONE}"].instances] == [made.name]
    assert scopes["zones/europe-west4-a"].warning.code == "NO_RESULTS_ON_PAGE"
    assert not scopes["zones/europe-west4-a"].instances


def test_fields_choose_what_is_shown(google: Google) -> None:
    made = google.made(plain(labels={"few": "fields"}))
    path = f"zones/{ZONE}/instances?filter=labels.few%3Dfields&fields=items(name,disks/autoDelete)"
    assert google.raw("GET", path) == (200, {"items": [{"name": made.name, "disks": [{"autoDelete": True}]}]})


def test_labels_and_metadata_change_under_their_fingerprints(google: Google) -> None:
    made = google.made(plain())
    labels = compute_v1.InstancesSetLabelsRequest(labels={"a": "b"}, label_fingerprint=made.label_fingerprint)
    where = {"project": PROJECT, "zone": ZONE, "instance": made.name}
    google.wait(google.instances.set_labels_unary(instances_set_labels_request_resource=labels, **where))
    assert google.get(made.name).labels == {"a": "b"}
    with pytest.raises(exceptions.PreconditionFailed):
        google.instances.set_labels_unary(instances_set_labels_request_resource=labels, **where)
    metadata = compute_v1.Metadata(
        items=[compute_v1.Items(key="k", value="v")], fingerprint=made.metadata.fingerprint
    )
    google.wait(google.instances.set_metadata_unary(metadata_resource=metadata, **where))
    assert [(item.key, item.value) for item in google.get(made.name).metadata.items] == [("k", "v")]
    with pytest.raises(exceptions.PreconditionFailed):
        google.instances.set_metadata_unary(metadata_resource=metadata, **where)


# ------------------------------------------------------------ facts, permissions


def test_what_is_sold_where(google: Google) -> None:
    family = {"project": "deeplearning-platform-release"}
    image = google.images.get_from_family(family="common-cu129-ubuntu-2204-nvidia-580", **family)
    assert (image.name, image.architecture) == ("common-cu129-ubuntu-2204-nvidia-580-v20261031", "X86_64")
    arm = google.images.get_from_family(project="ubuntu-os-cloud", family="ubuntu-2404-lts-arm64")
    assert arm.architecture == "ARM64"
    with pytest.raises(exceptions.NotFound):
        google.images.get_from_family(family="common-cu113-ubuntu-2004", **family)
    g2 = google.machine_types.get(project=PROJECT, zone=ZONE, machine_type="g2-standard-4")
    assert (g2.guest_cpus, g2.memory_mb, g2.accelerators[0].guest_accelerator_type) == (4, 16384, "nvidia-l4")
    gpus = [one.name for one in google.accelerator_types.list(project=PROJECT, zone=ZONE)]
    assert {"nvidia-l4", "nvidia-tesla-t4"} <= set(gpus)
    zones = [zone.name for zone in google.zones.list(project=PROJECT)]
    assert {"us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"} <= set(zones)


def test_a_permission_that_is_lacking_is_named_by_call_and_by_test(google: Google) -> None:
    google.cloud.settings(denied=["compute.instances.create", "compute.instances.list"])
    with pytest.raises(
        exceptions.Forbidden, match=r"Required 'compute\.instances\.create' permission"
    ) as refused:
        google.insert(body())
    assert refused.value.errors[0]["reason"] == "forbidden"
    with pytest.raises(exceptions.Forbidden, match=r"compute\.instances\.list"):
        google.listed()
    asked = {"permissions": ["compute.instances.create", "compute.instances.get"]}
    url = f"{google.cloud.url}/v1/projects/{PROJECT}:testIamPermissions"
    request = urllib.request.Request(url, json.dumps(asked).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer) == {"permissions": ["compute.instances.get"]}


def test_preemption_ends_a_spot_instance_as_it_was_told(google: Google) -> None:
    deleted = google.made(body())
    stopped = google.made(scheduled(instanceTerminationAction="STOP"))
    lasting = google.made(plain())
    for one in (deleted, stopped):
        google.cloud.preempt(one.name)
    with pytest.raises(urllib.error.HTTPError):
        google.cloud.preempt(lasting.name)
    end = time.monotonic() + 30
    while deleted.name in google.listed() or google.get(stopped.name).status != "TERMINATED":
        assert time.monotonic() < end
    assert google.get(lasting.name).status == "RUNNING"
    request = compute_v1.ListZoneOperationsRequest(
        project=PROJECT, zone=ZONE, filter="operationType=compute.instances.preempted"
    )
    targets = {one.target_link.rpartition("/")[2] for one in google.operations.list(request=request)}
    assert targets == {deleted.name, stopped.name}
