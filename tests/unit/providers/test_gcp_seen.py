"""What is read out of Google's answers, and where Google is asked."""

from __future__ import annotations

import base64
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import MachineState
from orchestrator.providers.gcp.calls import require_complete
from orchestrator.providers.gcp.clients import endpoint_of, is_anonymous, project_in
from orchestrator.providers.gcp.operations import follow, is_begun, is_done
from orchestrator.providers.gcp.seen import addresses, has_public_address, host_keys, is_ours, machine
from tests.conftest import ROOT

ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"
HERE = "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a"
SEEN: dict[str, Any] = {
    "name": "orch-digits-ab12-0",
    "status": "RUNNING",
    "zone": HERE,
    "machineType": f"{HERE}/machineTypes/g2-standard-4",
    "creationTimestamp": "2026-11-20T10:00:00.123-08:00",
    "labels": {"orch-lease": "digits-ab12"},
    "scheduling": {"provisioningModel": "SPOT", "maxRunDuration": {"seconds": "3600"}},
    "networkInterfaces": [
        {"networkIP": "10.128.0.2", "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "natIP": "203.0.113.9"}]}
    ],
    "metadata": {
        "items": [
            {"key": "orch-price", "value": "0.2816"},
            {"key": "orch-deadline", "value": "2026-11-20T19:00:00+00:00"},
            {"key": "orch-image", "value": "projects/x/global/images/y"},
        ]
    },
}


def test_a_machine_as_it_is_listed() -> None:
    found = machine(SEEN, "p")
    assert (found.id, found.name, found.zone) == ("orch-digits-ab12-0", "orch-digits-ab12-0", "us-central1-a")
    assert (found.instance_type, found.price) == ("g2-standard-4", 0.2816)
    assert found.state is MachineState.RUNNING
    assert found.created_at == datetime(2026, 11, 20, 18, 0, 0, 123000, UTC)
    assert found.deadline == datetime(2026, 11, 20, 19, 0, tzinfo=UTC)
    assert found.detail["address"] == "203.0.113.9"
    assert found.detail["image"] == "projects/x/global/images/y"
    assert found.detail["spot"] is True
    assert "tunnel" not in found.detail


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("PROVISIONING", MachineState.PENDING),
        ("STAGING", MachineState.PENDING),
        ("RUNNING", MachineState.RUNNING),
        ("STOPPING", MachineState.STOPPING),
        ("DEPROVISIONING", MachineState.STOPPING),
        ("TERMINATED", MachineState.STOPPED),
        ("SUSPENDED", MachineState.STOPPED),
        ("OF_TOMORROW", MachineState.PENDING),
    ],
)
def test_states(status: str, state: MachineState) -> None:
    assert machine({**SEEN, "status": status}, "p").state is state


def test_without_our_note_the_deadline_is_google_s() -> None:
    bare = {**SEEN, "metadata": {}}
    assert machine(bare, "p").deadline == datetime(2026, 11, 20, 19, 0, 0, 123000, UTC)
    assert machine(bare, "p").price == 0


def test_what_others_made_is_not_ours() -> None:
    assert is_ours(SEEN)
    assert not is_ours({**SEEN, "labels": {"team": "x"}})
    assert not is_ours({**SEEN, "metadata": {}})


def test_addresses() -> None:
    assert addresses(SEEN) == ("203.0.113.9", "10.128.0.2")
    assert has_public_address(SEEN)
    inside = {**SEEN, "networkInterfaces": [{"networkIP": "10.128.0.2"}]}
    assert addresses(inside) == ("", "10.128.0.2")
    assert not has_public_address(inside)
    assert machine(inside, "p").detail["tunnel"].startswith("gcloud compute start-iap-tunnel orch-digits")
    coming = {**SEEN, "networkInterfaces": [{"networkIP": "10.1.1.1", "accessConfigs": [{"name": "x"}]}]}
    assert addresses(coming)[0] == ""
    assert has_public_address(coming)


def key(kind: str, body: bytes = b"x" * 32) -> str:
    parts = (kind.encode(), body)
    return base64.b64encode(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).decode()


def test_host_keys_come_from_the_guest_attributes_best_first() -> None:
    rsa, ed = key("ssh-rsa"), key("ssh-ed25519")
    found = host_keys([{"key": "ssh-rsa", "value": rsa}, {"key": "ssh-ed25519", "value": f"{ed}\n"}])
    assert found == (f"ssh-ed25519 {ed}", f"ssh-rsa {rsa}")


@pytest.mark.parametrize(
    "attribute",
    [
        {"key": "ssh-ed25519", "value": ""},
        {"key": "ssh-ed25519", "value": "not base64!"},
        {"key": "ssh-ed25519", "value": key("ssh-rsa")},
        {"key": "ssh-dss", "value": key("ssh-dss")},
        {"key": "ssh-ed25519"},
        {},
    ],
)
def test_what_is_no_host_key_is_none(attribute: dict[str, str]) -> None:
    assert host_keys([attribute]) == ()


@pytest.mark.parametrize(
    "answer",
    [
        {"items": {"zones/us-east1-b": {"warning": {"code": "UNREACHABLE", "message": "us-east1-b"}}}},
        {"items": {"zones/us-east1-b": {"instances": [], "warning": {"code": "OF_TOMORROW"}}}},
        {"warning": {"code": "PARTIAL_SUCCESS", "message": "us-east1-b"}},
        {"unreachables": ["projects/p/zones/us-east1-b"]},
    ],
)
def test_a_zone_that_does_not_answer_is_not_an_empty_one(answer: dict[str, Any]) -> None:
    with pytest.raises(ProviderError, match="us-east1-b") as refused:
        require_complete(answer)
    assert refused.value.fault is Fault.TRANSIENT


def test_an_empty_zone_is() -> None:
    require_complete({"items": {"zones/a": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}, "zones/b": {}}})


# ---------------------------------------------------------------- operations


def test_an_operation_is_followed_until_it_holds_or_patience_ends() -> None:
    states = iter(["PENDING", "RUNNING", "DONE"])
    slept: list[float] = []

    def ask(name: str) -> dict[str, str]:
        return {"name": name, "status": next(states)}

    def clock() -> float:
        return sum(slept)

    begun = {"name": "operation-7", "status": "PENDING"}
    assert follow(begun, ask, is_begun, 10, clock=clock, sleep=slept.append)["status"] == "RUNNING"
    assert follow(begun, ask, is_done, 10, clock=clock, sleep=slept.append)["status"] == "DONE"
    asked = len(slept)
    stuck = follow(begun, lambda _: begun, is_done, 10, clock=clock, sleep=slept.append)
    assert stuck["status"] == "PENDING"
    assert 5 < len(slept) - asked < 30


# ---------------------------------------------------------------- where Google is asked


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("", None),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://localhost:8080/compute/v1/", "http://localhost:8080"),
        ("http://[::1]:8080/compute/v1", "http://[::1]:8080"),
        ("http://127.0.0.1:8080/fake/compute/v1/", "http://127.0.0.1:8080/fake"),
        ("https://compute.example.com/compute/v1/projects/", "https://compute.example.com"),
        ("https://compute-me.p.googleapis.com/compute/v1/", "https://compute-me.p.googleapis.com"),
    ],
)
def test_the_endpoint(given: str, base: str | None) -> None:
    assert endpoint_of({ENDPOINT: given}) == base
    assert is_anonymous({ENDPOINT: given}) == (base or "").startswith("http://")


@pytest.mark.parametrize(
    "given",
    [
        "http://10.0.0.1:8080",
        "http://compute.example.com/",
        "127.0.0.1:80",
        "ftp://x",
        "https://x/compute/beta/",
    ],
)
def test_an_endpoint_that_cannot_be_trusted_is_refused(given: str) -> None:
    with pytest.raises(ProviderError, match=ENDPOINT) as refused:
        endpoint_of({ENDPOINT: given})
    assert refused.value.fault is Fault.INVALID


def test_the_project() -> None:
    assert project_in({"CLOUDSDK_CORE_PROJECT": "b", "GOOGLE_CLOUD_PROJECT": "a"}) == "a"
    assert project_in({"CLOUDSDK_CORE_PROJECT": "b", "GOOGLE_CLOUD_PROJECT": " "}) == "b"
    assert project_in({}) == ""


def test_opening_the_provider_loads_no_library_and_asks_nobody() -> None:
    program = (
        "import sys, orchestrator.providers as p; p.open_provider('gcp');"
        "print([m for m in sys.modules if m.split('.')[0] in ('google', 'requests')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


def test_without_a_project_nothing_is_asked() -> None:
    from orchestrator.providers.gcp.provider import GcpProvider

    provider = GcpProvider({ENDPOINT: "http://127.0.0.1:9"})
    with pytest.raises(ProviderError, match="GOOGLE_CLOUD_PROJECT") as refused:
        provider.list({"orch-lease": "x"})
    assert refused.value.fault is Fault.INVALID
