"""Google's answers, as they come over the wire, and the fault that each is."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests
from google.api_core.exceptions import from_http_response
from google.auth import exceptions as auth

from orchestrator.errors import Fault
from orchestrator.providers.gcp.calls import INSERT
from orchestrator.providers.gcp.faults import Quota, of_answer, of_operation
from orchestrator.providers.gcp.refusing import Asker, refused, understood

Json = dict[str, Any]
INFO = "type.googleapis.com/google.rpc.ErrorInfo"
ZONE = "projects/p/zones/us-central1-a"


def operation(*errors: Json, http: int = 503) -> Json:
    return {
        "name": "operation-1",
        "status": "DONE",
        "httpErrorStatusCode": http,
        "httpErrorMessage": "SERVICE UNAVAILABLE",
        "error": {"errors": list(errors)},
    }


def error(code: str, message: str = "Google says so.", *details: Json) -> Json:
    return {"code": code, "message": message, "errorDetails": list(details)}


def answer(status: int, reason: str = "", message: str = "Google says so.", *details: Json) -> Json:
    body: Json = {"code": status, "message": message}
    if reason:
        body["errors"] = [{"message": message, "domain": "global", "reason": reason}]
    if details:
        body["details"] = list(details)
    return body


STOCKOUT = error(
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    f"The zone '{ZONE}' does not have enough resources available to fulfill the request, "
    "'(resource type:compute)'.",
    {
        "errorInfo": {
            "reason": "resource_availability",
            "domain": "compute.googleapis.com",
            "metadatas": {"vmType": "g2-standard-4", "zone": "us-central1-a", "attachment": "nvidia-l4=1"},
        }
    },
    {"help": {"links": [{"description": "Troubleshooting", "url": "https://cloud.google.com/t"}]}},
    {"localizedMessage": {"locale": "en-US", "message": "A g2-standard-4 VM instance is unavailable."}},
)
QUOTA = error(
    "QUOTA_EXCEEDED",
    "Quota 'NVIDIA_L4_GPUS' exceeded.  Limit: 1.0 in region us-central1.",
    {
        "quotaInfo": {
            "metricName": "compute.googleapis.com/nvidia_l4_gpus",
            "limitName": "NVIDIA-L4-GPUS-per-project-region",
            "dimensions": {"region": "us-central1"},
            "limit": 1.0,
        }
    },
)
GLOBAL_QUOTA = error(
    "QUOTA_EXCEEDED",
    "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally.",
    {
        "quotaInfo": {
            "metricName": "compute.googleapis.com/gpus_all_regions",
            "limitName": "GPUS-ALL-REGIONS-per-project",
            "dimensions": {"region": "global"},
            "limit": 0.0,
        }
    },
)
# A message that names every other class: words must not decide.
LIES = "quotaExceeded ZONE_RESOURCE_POOL_EXHAUSTED permission denied, please try again later"


@pytest.mark.parametrize(
    ("failed", "fault", "code"),
    [
        (operation(STOCKOUT), Fault.CAPACITY, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"),
        (
            operation(error("ZONE_RESOURCE_POOL_EXHAUSTED")),
            Fault.CAPACITY,
            "ZONE_RESOURCE_POOL_EXHAUSTED",
        ),
        (operation(error("VM_MIN_COUNT_NOT_REACHED")), Fault.CAPACITY, "VM_MIN_COUNT_NOT_REACHED"),
        (operation(error("insufficientCapacity")), Fault.CAPACITY, "insufficientCapacity"),
        (
            operation(error("UNSUPPORTED_OPERATION", "Instance was preempted while creating."), http=400),
            Fault.CAPACITY,
            "UNSUPPORTED_OPERATION",
        ),
        (operation(QUOTA, http=403), Fault.QUOTA, "QUOTA_EXCEEDED"),
        (operation(GLOBAL_QUOTA, http=403), Fault.QUOTA, "QUOTA_EXCEEDED"),
        (
            operation(error("VM_MIN_COUNT_NOT_REACHED"), QUOTA),
            Fault.QUOTA,
            "QUOTA_EXCEEDED",
        ),
        (
            operation(error("IAM_PERMISSION_DENIED"), http=403),
            Fault.AUTH,
            "IAM_PERMISSION_DENIED",
        ),
        (operation(error("RESOURCE_NOT_FOUND"), http=404), Fault.INVALID, "RESOURCE_NOT_FOUND"),
        (operation(error("VPC_NOT_FOUND"), http=404), Fault.INVALID, "VPC_NOT_FOUND"),
        (
            operation(error("RESOURCE_ALREADY_EXISTS"), http=409),
            Fault.CONFLICT,
            "RESOURCE_ALREADY_EXISTS",
        ),
        (operation(error("RESOURCE_NOT_READY"), http=400), Fault.TRANSIENT, "RESOURCE_NOT_READY"),
        (
            operation(error("RESOURCE_OPERATION_RATE_EXCEEDED"), http=403),
            Fault.TRANSIENT,
            "RESOURCE_OPERATION_RATE_EXCEEDED",
        ),
        (operation(error("INTERNAL_ERROR"), http=500), Fault.TRANSIENT, "INTERNAL_ERROR"),
        (operation(error("A_CODE_OF_TOMORROW", LIES)), Fault.UNKNOWN, "A_CODE_OF_TOMORROW"),
        (operation(error("INVALID_FIELD_VALUE", LIES)), Fault.INVALID, "INVALID_FIELD_VALUE"),
    ],
)
def test_operations(failed: Json, fault: Fault, code: str) -> None:
    refusal = of_operation(failed)
    assert refusal is not None
    assert (refusal.fault, refusal.code) == (fault, code)


@pytest.mark.parametrize("running", [{}, {"status": "RUNNING"}, {"status": "DONE", "error": {}}])
def test_an_operation_without_errors_refuses_nothing(running: Json) -> None:
    assert of_operation(running) is None


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (403, answer(403, "quotaExceeded", "Quota 'CPUS' exceeded. Limit: 24.0 in region x."), Fault.QUOTA),
        (403, answer(403, "rateLimitExceeded"), Fault.TRANSIENT),
        (403, answer(403, "userRateLimitExceeded"), Fault.TRANSIENT),
        (403, answer(403, "forbidden", LIES), Fault.AUTH),
        (403, answer(403, "accessNotConfigured"), Fault.AUTH),
        (403, answer(403, "", "x", {"@type": INFO, "reason": "IAM_PERMISSION_DENIED"}), Fault.AUTH),
        (403, answer(403, "", "x", {"@type": INFO, "reason": "SERVICE_DISABLED"}), Fault.AUTH),
        (403, answer(403, "", "x", {"@type": INFO, "reason": "RATE_LIMIT_EXCEEDED"}), Fault.TRANSIENT),
        (403, answer(403, "unheardOf"), Fault.AUTH),
        (401, answer(401, "authError"), Fault.AUTH),
        (401, answer(401, "required", "Login Required."), Fault.AUTH),
        (401, {}, Fault.AUTH),
        (400, answer(400, "invalid", LIES), Fault.INVALID),
        (400, answer(400, "required"), Fault.INVALID),
        (400, answer(400, "badRequest"), Fault.INVALID),
        (400, answer(400, "resourceNotReady"), Fault.TRANSIENT),
        (400, answer(400, "unheardOf"), Fault.INVALID),
        (404, answer(404, "notFound"), Fault.INVALID),
        (409, answer(409, "alreadyExists"), Fault.CONFLICT),
        (409, {}, Fault.CONFLICT),
        (412, answer(412, "conditionNotMet"), Fault.INVALID),
        (429, answer(429, "rateLimitExceeded"), Fault.TRANSIENT),
        (429, {}, Fault.TRANSIENT),
        (500, answer(500, "backendError"), Fault.TRANSIENT),
        (502, {}, Fault.TRANSIENT),
        (503, answer(503, "backendError", LIES), Fault.TRANSIENT),
        (503, answer(503, "ZONE_RESOURCE_POOL_EXHAUSTED"), Fault.CAPACITY),
        (418, {}, Fault.UNKNOWN),
    ],
)
def test_answers(status: int, body: Json, fault: Fault) -> None:
    assert of_answer(status, body).fault is fault
    said = understood(raised(status, body))
    assert said is not None
    assert said.fault is fault


def raised(status: int, body: Json) -> Exception:
    """What Google's library raises for that answer."""
    response = requests.Response()
    response.status_code = status
    response._content = json.dumps({"error": body}).encode() if body else b"<html>no JSON</html>"
    response.request = requests.Request("POST", "http://127.0.0.1:1/compute/v1/projects/p").prepare()
    made: Exception = from_http_response(response)
    return made


@pytest.mark.parametrize(
    ("exception", "fault"),
    [
        (auth.DefaultCredentialsError("File nowhere.json was not found."), Fault.AUTH),
        (auth.RefreshError("invalid_grant: Bad Request"), Fault.AUTH),
        (auth.TransportError("no route"), Fault.TRANSIENT),
        (requests.ConnectionError("refused"), Fault.TRANSIENT),
        (requests.ReadTimeout("60 s"), Fault.TRANSIENT),
        (ConnectionResetError("reset"), Fault.TRANSIENT),
    ],
)
def test_what_is_raised_without_an_answer(exception: Exception, fault: Fault) -> None:
    refusal = understood(exception)
    assert refusal is not None
    assert refusal.fault is fault


def test_a_mistake_of_ours_is_no_answer_of_google() -> None:
    assert understood(TypeError("ours")) is None
    assert understood(KeyError("ours")) is None


# ---------------------------------------------------------------- what is told


def test_a_quota_is_named_as_the_console_names_it() -> None:
    refusal = of_operation(operation(QUOTA, http=403))
    assert refusal is not None
    assert refusal.quota == Quota("NVIDIA_L4_GPUS", "us-central1", 1.0)
    told = refused(refusal, INSERT, Asker("a@b", "p"), lambda _: 1.0)
    assert told.exit_code == 4
    for word in ("NVIDIA_L4_GPUS", "us-central1", "allows 1", "1 are in use", "iam-admin/quotas?project=p"):
        assert word in told.message
    everywhere = of_operation(operation(GLOBAL_QUOTA, http=403))
    assert everywhere is not None
    assert everywhere.quota == Quota("GPUS_ALL_REGIONS", "", 0.0)


def test_a_quota_whose_limit_has_a_name_only() -> None:
    info = {"quotaInfo": {"limitName": "CPUS-ALL-REGIONS-per-project", "limit": 12.0}}
    refusal = of_operation(operation(error("QUOTA_EXCEEDED", "x", info)))
    assert refusal is not None
    assert refusal.quota == Quota("CPUS_ALL_REGIONS", "", 12.0)


def test_who_may_not_and_what_it_takes() -> None:
    metadata = {"permission": "compute.instances.create", "resource": "projects/p/zones/z/instances/i"}
    body = answer(
        403,
        "forbidden",
        "Not allowed.",
        {"@type": INFO, "reason": "IAM_PERMISSION_DENIED", "metadata": metadata},
    )
    refusal = understood(raised(403, body))
    assert refusal is not None
    assert refusal.permission == "compute.instances.create"
    told = refused(refusal, INSERT, Asker("robot@p.iam.gserviceaccount.com", "p"))
    assert told.exit_code == 3
    assert "robot@p.iam.gserviceaccount.com" in told.message
    assert "compute.instances.create" in told.message


def test_the_permission_of_the_call_where_the_answer_names_none() -> None:
    told = refused(of_answer(403, answer(403, "forbidden")), INSERT, Asker("me", "p"))
    assert INSERT.permission in told.message


@pytest.mark.parametrize(
    "body",
    [
        answer(
            400,
            "badRequest",
            "Invalid JSON payload received.",
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": "resource.scheduling", "description": "x"}],
            },
        ),
        answer(400, "invalid", "Invalid value for field 'resource.scheduling': 'x'. No."),
    ],
)
def test_the_field_that_was_refused_is_named(body: Json) -> None:
    refusal = understood(raised(400, body))
    assert refusal is not None
    assert refusal.field == "resource.scheduling"
    assert "resource.scheduling" in refused(refusal, INSERT, Asker("me", "p")).message


def test_google_s_own_words_come_through_without_our_address() -> None:
    refusal = understood(raised(400, answer(400, "invalid", "Just so.")))
    assert refusal is not None
    assert refusal.words == "Just so."
