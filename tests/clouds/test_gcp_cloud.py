"""The emulated Compute Engine keeps its promises to Google's own client."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

compute_v1 = pytest.importorskip("google.cloud.compute_v1")
pytest.importorskip("googleapiclient")

from google.api_core import exceptions  # noqa: E402

from tests.clouds.gcp_client import PROJECT, ZONE, Body, Google, body, gpu, name, plain, scheduled  # noqa: E402

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
    assert now.insert_time < now.start_time < now.end_time
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


def test_one_request_id_at_once_is_one_operation(google: Google) -> None:
    asked, request_id = body(), str(uuid.uuid4())
    with ThreadPoolExecutor(8) as pool:
        names = set(pool.map(lambda _: google.insert(asked, request_id).name, range(8)))
    assert len(names) == 1
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda _: _outcome(google, asked), range(8)))
    assert outcomes == ["Conflict"] * 8


def _outcome(google: Google, asked: Body) -> str:
    try:
        google.insert(asked, str(uuid.uuid4()))
    except exceptions.GoogleAPICallError as error:
        return type(error).__name__
    return "made"


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
    google.cloud.settings(visible_s=3600)
    hidden = plain()
    google.wait(google.insert(hidden))
    with pytest.raises(exceptions.NotFound):
        google.get(hidden["name"])
    assert hidden["name"] not in google.listed()
    google.cloud.settings(visible_s=1)
    asked = plain()
    google.wait(google.insert(asked))
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


def test_prices_are_paged_as_cloud_billing_does(google: Google) -> None:
    url, token, found = f"{google.cloud.url}/v1/services/6F81-5844-456A/skus?pageSize=5&pageToken=", "", []
    while True:
        with urllib.request.urlopen(url + token, timeout=30) as answer:
            page = json.load(answer)
        found += page["skus"]
        token = page["nextPageToken"]
        if not token:
            break
    l4 = next(sku for sku in found if sku["description"] == "Nvidia L4 GPU running in Americas")
    rate = l4["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]
    assert int(rate["units"]) + rate["nanos"] / 1e9 == pytest.approx(0.56004)
    assert len({sku["skuId"] for sku in found}) == len(found) > 5


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
