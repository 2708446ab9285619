"""An organisation that demands OS Login: the lease's key is imported, expires, and goes with its machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.api import setup as setup_
from orchestrator.api.cloud_doctor import examine as ask
from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Check, MachineSpec, Offer, Provider, Readiness
from orchestrator.providers import open_provider

pytest.importorskip("google.cloud.compute_v1")

from tests.clouds import gcp

ANN = "ann@example.com"
POLICY = "compute.requireOsLogin"
ENFORCED = {POLICY: {"booleanPolicy": {"enforced": True}}}
OFFER = Offer("gcp", "n2-standard-2", "us-central1", "us-central1-a", 2, 8 << 30, "x86_64", 0.1)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a orch-one"


@pytest.fixture(scope="module")
def served() -> Iterator[gcp.Cloud]:
    with gcp.running(machines=False) as made:
        yield made


@pytest.fixture
def cloud(served: gcp.Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[gcp.Cloud]:
    for name, value in {**served.env, "CLOUDSDK_CORE_ACCOUNT": ANN}.items():
        monkeypatch.setenv(name, value)
    served.settings(policies=ENFORCED, denied=[], disabled=[])
    yield served
    served.clear_faults()
    served.settings(policies={}, denied=[], disabled=[])


def spec(attempt: int = 0) -> MachineSpec:
    now = datetime.now(UTC)
    return MachineSpec(
        id="orch-one",
        attempt=attempt,
        offer=OFFER,
        disk=20 << 30,
        deadline=now + timedelta(hours=2),
        labels={"orch-lease": f"one-{attempt}", "orch-owner": "ann"},
        ssh_public_key=KEY,
        lasts=7200,
    )


def keys(cloud: gcp.Cloud) -> dict[str, Any]:
    found: dict[str, Any] = cloud.state()["login_keys"].get(ANN, {})
    return found


def end(provider: Provider, machine: Any) -> None:
    provider.delete(machine)
    while provider.find(machine) is not None:
        pass


def test_the_key_goes_in_with_the_machine_and_out_with_it(cloud: gcp.Cloud) -> None:
    provider = open_provider("gcp")
    machine = provider.create(spec())
    (kept,) = keys(cloud).values()
    assert kept["key"] == KEY
    left = int(kept["expirationTimeUsec"]) / 1e6 - datetime.now(UTC).timestamp()
    assert 7200 < left <= 7200 + 3600
    (shape,) = cloud.state()["instances"]
    told = {item["key"]: item["value"] for item in shape["metadata"]["items"]}
    assert told["enable-oslogin"] == "TRUE" and "ssh-keys" not in told
    assert machine.detail["base"] == "/home/ann_example_com/orch"
    assert "ann_example_com ALL=(root) NOPASSWD" in told["startup-script"]
    end(provider, machine)
    assert keys(cloud), "not before it is proven gone"
    provider.forget(replace(machine, detail={"login_key": machine.detail["login_key"]}))
    assert keys(cloud) == {}
    provider.forget(machine)  # a second time is no error


def test_a_refused_machine_leaves_no_key(cloud: gcp.Cloud) -> None:
    cloud.faults({"method": "compute.instances.insert", "kind": "stockout"})
    provider = open_provider("gcp")
    with pytest.raises(ProviderError) as refused:
        provider.create(spec(1))
    assert refused.value.fault is Fault.CAPACITY
    assert keys(cloud) == {}
    machine = provider.create(spec(1))
    assert len(keys(cloud)) == 1, "the call that is repeated brings its key again"
    end(provider, machine)
    provider.forget(machine)


def test_without_the_policy_no_profile_is_touched(cloud: gcp.Cloud) -> None:
    cloud.settings(policies={})
    provider = open_provider("gcp")
    machine = provider.create(spec(2))
    assert keys(cloud) == {} and "login_key" not in machine.detail
    end(provider, machine)


def test_it_can_be_asked_for_and_done_without(cloud: gcp.Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.settings(policies={})
    monkeypatch.setenv("ORCH_GCP_OS_LOGIN", "1")
    provider = open_provider("gcp")
    machine = provider.create(spec(3))
    assert keys(cloud)
    end(provider, machine)
    provider.forget(machine)
    monkeypatch.setenv("ORCH_GCP_OS_LOGIN", "0")
    cloud.settings(policies=ENFORCED)
    with pytest.raises(ProviderError, match=POLICY) as refused:
        open_provider("gcp").create(spec(4))
    assert refused.value.fault is Fault.INVALID
    monkeypatch.setenv("ORCH_GCP_OS_LOGIN", "yes")
    with pytest.raises(ProviderError, match="ORCH_GCP_OS_LOGIN"):
        open_provider("gcp").create(spec(5))


# ---------------------------------------------------------------- the doctor, and setup


def missing(readiness: Readiness) -> list[Check]:
    return list(readiness.missing)


@pytest.mark.usefixtures("cloud")
def test_the_doctor_finds_nothing_in_the_way() -> None:
    found = ask("gcp")
    assert [check.name for check in found.missing] == []
    assert any(ANN in check.detail for check in found.checks)


def test_what_lacks_is_named_with_its_remedy(cloud: gcp.Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.settings(disabled=["oslogin.googleapis.com"])
    (api,) = missing(ask("gcp"))
    assert (api.name, "orch setup gcp" in str(api.remedy)) == ("oslogin.googleapis.com", True)
    cloud.settings(disabled=[], denied=["compute.instances.osAdminLogin", "compute.instances.osLogin"])
    (role,) = missing(ask("gcp"))
    assert f"--member=user:{ANN} --role=roles/compute.osAdminLogin" in str(role.remedy)
    cloud.settings(denied=[])
    monkeypatch.delenv("CLOUDSDK_CORE_ACCOUNT")
    (account,) = missing(ask("gcp"))
    assert "export CLOUDSDK_CORE_ACCOUNT" in str(account.remedy)
    with pytest.raises(ProviderError, match="address of your account"):
        open_provider("gcp").create(spec(6))


def test_setup_enables_the_api_that_the_policy_takes(cloud: gcp.Cloud) -> None:
    cloud.settings(disabled=["oslogin.googleapis.com"])
    made = setup_.setup("gcp", source="203.0.113.7/32")
    assert "API oslogin.googleapis.com" in [step.name for step in made.changed]
    assert missing(ask("gcp")) == []
    setup_.setup("gcp", undo=True)
