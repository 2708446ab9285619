"""Images of a project's own disks: as the emulated Compute Engine makes them, and as orch asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("google.cloud.compute_v1")

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import ImageState, Machine, MachineSpec, Offer
from orchestrator.providers.gcp import baking
from orchestrator.providers.gcp.provider import GcpProvider
from orchestrator.providers.retry import RetryingProvider
from tests.clouds.gcp.discovery import compute
from tests.clouds.gcp_client import PROJECT, ZONE, Google, name, plain

LABELS = {"orch-stack": "0123456789abcdef", "orch-base": "fedcba9876543210"}
E2 = Offer("gcp", "e2-standard-2", "us-central1", ZONE, 2, 8 << 30, "x86_64", 0.07)


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def no_other_images(google: Google) -> Iterator[None]:
    google.cloud.settings(image_s=0.3)
    yield
    google.cloud.clear_faults()
    google.cloud.settings(denied=[], policies={}, work_s=0.15)

    def gone() -> bool:
        left = google.cloud.state()["images"]
        for image in left:
            google.raw("DELETE", f"global/images/{image['name']}")
        return not left

    eventually(gone)


# ---------------------------------------------------------------- as Compute Engine does it


def stopped(google: Google) -> str:
    machine = str(google.made(plain()).name)
    google.wait(google.instances.stop_unary(project=PROJECT, zone=ZONE, instance=machine))
    return machine


def source(machine: str) -> str:
    return f"projects/{PROJECT}/zones/{ZONE}/disks/{machine}"


def insert(google: Google, image: str, machine: str, query: str = "", **more: Any) -> tuple[int, Any]:
    return google.raw("POST", f"global/images{query}", {"name": image, "sourceDisk": source(machine), **more})


def status(google: Google, image: str) -> str:
    code, found = google.raw("GET", f"global/images/{image}")
    return str(found["status"]) if code == 200 else str(code)


def test_an_image_is_stored_after_a_while_and_deleted(google: Google) -> None:
    machine, image = stopped(google), name()
    code, accepted = insert(google, image, machine, labels={"orch-image": image, "a": "b"})
    assert code == 200 and "zone" not in accepted
    assert status(google, image) == "PENDING"
    assert google.raw("DELETE", f"global/images/{image}")[1]["errors"][0]["reason"] == "resourceNotReady"
    eventually(lambda: status(google, image) == "READY")
    _, found = google.raw("GET", f"global/images/{image}")
    compute().check("Image", found)
    assert int(found["archiveSizeBytes"]) and found["diskSizeGb"] == "10"
    assert found["guestOsFeatures"] and found["storageLocations"] == ["us"]
    for expression, seen in {"labels.orch-image:*": True, f'labels.a="{image}"': False}.items():
        listed = [one.name for one in google.images.list(request={"project": PROJECT, "filter": expression})]
        assert (image in listed) is seen
    assert insert(google, image, machine)[1]["errors"][0]["reason"] == "alreadyExists"
    assert google.raw("DELETE", f"global/images/{image}")[0] == 200
    assert status(google, image) in ("DELETING", "404")
    eventually(lambda: status(google, image) == "404")
    assert google.raw("DELETE", f"global/images/{image}")[0] == 404


def test_the_disk_of_a_running_machine_is_refused_unless_it_is_forced(google: Google) -> None:
    machine, image = google.made(plain()).name, name()
    code, refused = insert(google, image, machine)
    assert (code, refused["errors"][0]["reason"]) == (400, "resourceInUseByAnotherResource")
    assert insert(google, image, machine, "?forceCreate=true")[0] == 200


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "Upper"},
        {"name": "a-"},
        {"name": "a" * 64},
        {"name": ""},
        {"sourceDisk": ""},
        {"sourceImage": "global/images/other"},
        {"sourceDisk": "disks/short"},
        {"sourceDisk": f"zones/{ZONE}/disks/nobody"},
        {"storageLocations": ["us", "eu"]},
        {"storageLocations": ["the moon"]},
        {"labels": {"Upper": "x"}},
        {"nonsense": 1},
    ],
    ids=str,
)
def test_what_it_refuses(google: Google, changed: dict[str, Any]) -> None:
    machine = stopped(google)
    body = {"name": name(), "sourceDisk": source(machine), **changed}
    assert google.raw("POST", "global/images", body)[0] in (400, 404)
    assert google.cloud.state()["images"] == []


def test_where_the_disk_goes_first_nothing_is_stored(google: Google) -> None:
    machine, image = stopped(google), name()
    insert(google, image, machine)
    google.delete(machine)
    eventually(lambda: status(google, image) != "PENDING")
    assert status(google, image) == "FAILED"


def test_an_image_that_is_not_stored_boots_nothing(google: Google) -> None:
    machine, image = stopped(google), name()
    google.cloud.settings(image_s=1)
    insert(google, image, machine)
    google.cloud.settings(image_s=0.1)
    asked = plain()
    asked["disks"][0]["initializeParams"]["sourceImage"] = f"global/images/{image}"
    code, refused = google.raw("POST", f"zones/{ZONE}/instances", asked)
    assert (code, refused["errors"][0]["reason"]) == (400, "resourceNotReady")


# ---------------------------------------------------------------- as orch asks for it


@pytest.fixture
def provider(google: Google, monkeypatch: pytest.MonkeyPatch) -> RetryingProvider:
    monkeypatch.setattr(baking, "_POLL_S", 0.05)
    return RetryingProvider(GcpProvider(google.cloud.env), cap_s=0.2)


def spec(**more: Any) -> MachineSpec:
    end = datetime.now(UTC) + timedelta(hours=1)
    made = MachineSpec(name(), 1, E2, 12 << 30, end, {"orch-lease": "x"}, "ssh-ed25519 AAAA x")
    return replace(made, **more)


def machine_of(provider: RetryingProvider) -> Machine:
    return provider.create(spec())


def test_its_own_image_is_in_the_region_and_boots_as_securely_as_what_it_is_of(
    google: Google, provider: RetryingProvider
) -> None:
    image = provider.bake(machine_of(provider), "orch-mine", LABELS)
    assert (image.state, image.labels, image.region) == (ImageState.AVAILABLE, LABELS, "")
    assert image.detail["stored_in"] == ["us-central1"] and image.disk == 12 << 30 and image.size
    google.cloud.settings(policies={"compute.requireShieldedVm": {"booleanPolicy": {"enforced": True}}})
    made = provider.create(spec(image=image.reference))
    (shown,) = (one for one in google.cloud.state()["instances"] if one["name"] == made.id)
    assert shown["shieldedInstanceConfig"]["enableSecureBoot"]


NEEDED = (
    "compute.instances.stop",
    "compute.disks.useReadOnly",
    "compute.images.create",
    "compute.images.setLabels",
    "compute.images.get",
    "compute.globalOperations.get",
)


@pytest.mark.parametrize("lacking", NEEDED)
def test_what_is_not_allowed_is_named(google: Google, provider: RetryingProvider, lacking: str) -> None:
    machine = machine_of(provider)
    google.cloud.settings(denied=[lacking])
    with pytest.raises(ProviderError) as refused:
        provider.bake(machine, "orch-mine", LABELS)
    assert refused.value.fault is Fault.AUTH
    assert lacking in refused.value.message


@pytest.mark.parametrize(
    "lacking", ["compute.images.list", "compute.images.delete", "compute.images.useReadOnly"]
)
def test_nor_what_comes_afterwards(google: Google, provider: RetryingProvider, lacking: str) -> None:
    image = provider.bake(machine_of(provider), "orch-mine", LABELS)
    google.cloud.settings(denied=[lacking])
    calls: dict[str, Callable[[], object]] = {
        "compute.images.list": lambda: provider.images({}),
        "compute.images.delete": lambda: provider.delete_image(image),
        "compute.images.useReadOnly": lambda: provider.create(spec(image=image.reference)),
    }
    with pytest.raises(ProviderError) as refused:
        calls[lacking]()
    assert refused.value.fault is Fault.AUTH
    assert lacking in refused.value.message


def test_an_image_of_somebody_else_is_a_conflict_and_is_never_deleted(
    google: Google, provider: RetryingProvider
) -> None:
    machine = stopped(google)
    insert(google, "orch-mine", machine)
    eventually(lambda: status(google, "orch-mine") == "READY")
    assert provider.images({}) == []
    with pytest.raises(ProviderError, match="orch did not make") as refused:
        provider.bake(machine_of(provider), "orch-mine", LABELS)
    assert refused.value.fault is Fault.CONFLICT
    image = provider.bake(machine_of(provider), "orch-other", LABELS)
    provider.delete_image(replace(image, name="orch-mine"))
    assert status(google, "orch-mine") == "READY"


LOST = [
    ("compute.images.insert", "reset"),
    ("compute.images.insert", "unavailable"),
    ("compute.instances.stop", "reset"),
    ("compute.globalOperations.get", "unavailable"),
    ("compute.images.get", "too_many"),
]


@pytest.mark.parametrize(("method", "kind"), LOST)
@pytest.mark.parametrize("late", [False, True])
def test_a_call_that_fails_or_whose_answer_is_lost_makes_one_image(
    google: Google, provider: RetryingProvider, method: str, kind: str, late: bool
) -> None:
    machine = machine_of(provider)
    google.cloud.faults({"method": method, "kind": kind, "after_effect": late})
    provider.bake(machine, "orch-mine", LABELS)
    eventually(lambda: [one.state for one in provider.images(LABELS)] == [ImageState.AVAILABLE])


def test_a_failed_one_is_listed_with_the_reason_until_it_is_deleted(
    google: Google, provider: RetryingProvider
) -> None:
    machine = machine_of(provider)
    google.cloud.faults({"method": "compute.images.insert", "kind": "internal"})
    found = provider.bake(machine, "orch-mine", LABELS)
    assert found.state is ImageState.FAILED and found.detail["why"]
    provider.delete_image(found)
    assert provider.images({}) == []


def test_an_image_that_is_being_deleted_is_waited_for(google: Google, provider: RetryingProvider) -> None:
    image = provider.bake(machine_of(provider), "orch-mine", LABELS)
    google.cloud.settings(work_s=1.0)
    google.raw("DELETE", "global/images/orch-mine")
    (seen,) = provider.images({})
    assert seen.state is ImageState.FAILED and "deleted" in seen.detail["why"]
    provider.delete_image(image)
    assert provider.images({}) == []
