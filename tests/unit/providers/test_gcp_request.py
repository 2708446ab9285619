"""What one insert call holds, held against Google's own description of it."""

from __future__ import annotations

import subprocess
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import MachineSpec, Offer
from orchestrator.providers.gcp.images import Family, Image, Named, families, parse_name, path_of, resolve
from orchestrator.providers.gcp.names import call_id, is_name, machine_name
from orchestrator.providers.gcp.request import Setting, instance, require_sound
from orchestrator.providers.gcp.startup import startup_script
from orchestrator.providers.gcp.tunnel import proxy_command, tunnel_command
from orchestrator.providers.gcp.zones import expanded
from tests.clouds.gcp.discovery import compute

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
GIB = 1 << 30
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a orch"
IMAGE = Image("projects/ubuntu-os-cloud/global/images/ubuntu-2404-v1", 10)
PLAIN = Offer("gcp", "e2-standard-2", "us-central1", "us-central1-a", 2, 8 * GIB, "x86_64", 0.067)
L4 = replace(
    PLAIN,
    instance_type="g2-standard-4",
    price=0.71,
    accelerator="L4",
    accelerator_count=1,
    gpu_memory=24 * GIB,
)
T4 = replace(PLAIN, instance_type="n1-standard-4", accelerator="T4", accelerator_count=2)
SPEC = MachineSpec(
    id="orch-digits-ab12",
    attempt=3,
    offer=PLAIN,
    disk=20 * GIB,
    deadline=NOW + timedelta(hours=4),
    labels={"orch-lease": "digits-ab12", "orch-owner": "me"},
    ssh_public_key=KEY,
    user_data="#!/bin/sh\necho 'END' \"$0\"\n",
)


DEFAULT = Setting("p")


def made(offer: Offer = PLAIN, setting: Setting = DEFAULT, **changes: Any) -> dict[str, Any]:
    body = instance(replace(SPEC, offer=offer, **changes), setting, IMAGE, NOW)
    compute().check("Instance", body)
    return body


def notes(body: dict[str, Any]) -> dict[str, str]:
    return {item["key"]: item["value"] for item in body["metadata"]["items"]}


def test_the_deadline_is_google_s_own_to_keep() -> None:
    scheduling = made()["scheduling"]
    assert scheduling["maxRunDuration"] == {"seconds": str(4 * 3600 - 60)}
    soon = made(deadline=NOW + timedelta(seconds=90))["scheduling"]
    assert soon["maxRunDuration"] == {"seconds": "90"}
    assert scheduling["instanceTerminationAction"] == "DELETE"
    assert scheduling["automaticRestart"] is False
    assert scheduling["provisioningModel"] == "STANDARD"
    assert scheduling["onHostMaintenance"] == "MIGRATE"


@pytest.mark.parametrize("offer", [replace(PLAIN, spot=True), L4, T4, replace(L4, spot=True)])
def test_spot_and_gpus_never_migrate(offer: Offer) -> None:
    scheduling = made(offer)["scheduling"]
    assert scheduling["onHostMaintenance"] == "TERMINATE"
    assert scheduling["instanceTerminationAction"] == "DELETE"
    assert scheduling["provisioningModel"] == ("SPOT" if offer.spot else "STANDARD")


def test_labels_are_on_the_disk_too_and_the_disk_ends_with_the_machine() -> None:
    body = made()
    (disk,) = body["disks"]
    assert body["labels"] == disk["initializeParams"]["labels"] == SPEC.labels
    assert disk["boot"] and disk["autoDelete"]
    assert disk["initializeParams"]["diskSizeGb"] == "20"
    assert disk["initializeParams"]["sourceImage"] == IMAGE.path


@pytest.mark.parametrize(
    ("instance_type", "kind"),
    [
        ("n4-standard-2", "hyperdisk-balanced"),
        ("c4a-standard-4", "hyperdisk-balanced"),
        ("a3-ultragpu-8g", "hyperdisk-balanced"),
        ("a3-highgpu-8g", "pd-balanced"),
        ("n2-standard-2", "pd-balanced"),
    ],
)
def test_the_disk_is_of_a_type_that_the_family_takes(instance_type: str, kind: str) -> None:
    parameters = made(replace(PLAIN, instance_type=instance_type))["disks"][0]["initializeParams"]
    assert parameters["diskType"] == f"projects/p/zones/us-central1-a/diskTypes/{kind}"


def test_only_n1_gets_its_gpu_attached() -> None:
    assert "guestAccelerators" not in made(L4)
    assert made(T4)["guestAccelerators"] == [
        {
            "acceleratorType": "projects/p/zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4",
            "acceleratorCount": 2,
        }
    ]
    told = replace(T4, accelerator="Quadro", attach="nvidia-quadro-1")
    assert made(told)["guestAccelerators"][0]["acceleratorType"].endswith("/nvidia-quadro-1")


def test_who_may_log_in_and_nothing_else_may() -> None:
    body = made()
    held = notes(body)
    assert held["ssh-keys"] == f"orch:{KEY}"
    assert held["block-project-ssh-keys"] == held["enable-guest-attributes"] == "TRUE"
    assert held["enable-oslogin"] == "FALSE"
    assert "install-nvidia-driver" not in held
    assert notes(made(L4))["install-nvidia-driver"] == "True"
    assert body["serviceAccounts"] == []
    assert body["shieldedInstanceConfig"] == {
        "enableVtpm": True,
        "enableIntegrityMonitoring": True,
        "enableSecureBoot": True,
    }


def test_the_network() -> None:
    (interface,) = made()["networkInterfaces"]
    assert interface["network"] == "projects/p/global/networks/default"
    assert interface["accessConfigs"][0]["type"] == "ONE_TO_ONE_NAT"
    own = Setting.of("p", {"ORCH_GCP_SUBNETWORK": "orch", "ORCH_GCP_INTERNAL": "1"})
    (interface,) = made(setting=own)["networkInterfaces"]
    assert interface == {"subnetwork": "projects/p/regions/us-central1/subnetworks/orch"}
    whole = "projects/host/regions/us-central1/subnetworks/shared"
    (interface,) = made(setting=Setting("p", whole))["networkInterfaces"]
    assert interface["subnetwork"] == whole
    tunnelled = Setting.of("p", {"ORCH_GCP_INTERNAL": "iap"})
    (interface,) = made(setting=tunnelled)["networkInterfaces"]
    assert (tunnelled.tunnel, "accessConfigs" in interface) == (True, False)
    with pytest.raises(ProviderError, match="ORCH_GCP_INTERNAL is 'yes'; it must be 0, 1"):
        Setting.of("p", {"ORCH_GCP_INTERNAL": "yes"})


def test_the_tunnel_s_command() -> None:
    assert tunnel_command("p", "us-central1-a", "orch-x-1", 2222) == (
        *("gcloud", "compute", "start-iap-tunnel", "orch-x-1", "22"),
        *("--local-host-port=127.0.0.1:2222", "--zone=us-central1-a", "--project=p"),
    )
    assert proxy_command("p", "us-central1-a", "orch-x-1") == (
        *("gcloud", "compute", "start-iap-tunnel", "orch-x-1", "22"),
        *("--listen-on-stdin", "--verbosity=warning", "--zone=us-central1-a", "--project=p"),
    )


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("seconds", [-5, 0, 29, 120 * 86400 + 1])
def test_a_deadline_that_google_cannot_keep_is_refused(seconds: int) -> None:
    with pytest.raises(ProviderError, match="max_duration") as refused:
        made(deadline=NOW + timedelta(seconds=seconds))
    assert refused.value.fault is Fault.INVALID


def test_a_disk_that_does_not_hold_the_image_is_refused() -> None:
    with pytest.raises(ProviderError, match=r"resources\.disk is 9 GiB.* needs 10 GiB") as refused:
        made(disk=8 * GIB + 1)
    assert refused.value.fault is Fault.INVALID


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": {"Orch": "x"}}, "labels Orch"),
        ({"labels": {"orch-lease": "A b"}}, "labels orch-lease"),
        ({"ssh_public_key": "a\nb"}, "ssh_public_key"),
        ({"user_data": "echo"}, "user_data"),
        ({"deadline": datetime(2026, 1, 1)}, "time zone"),
        ({"offer": replace(PLAIN, zone="")}, "zone"),
    ],
)
def test_what_is_unsound_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ProviderError, match=words) as refused:
        require_sound(replace(SPEC, **changes))
    assert refused.value.fault is Fault.INVALID


# ---------------------------------------------------------------- names


@given(st.text(max_size=90), st.integers(0, 10**6))
def test_every_id_gives_a_name_that_google_takes(identity: str, attempt: int) -> None:
    assert is_name(machine_name(replace(SPEC, id=identity, attempt=attempt)))


def test_names_and_calls_are_as_different_as_their_machines() -> None:
    assert machine_name(SPEC) == "orch-digits-ab12-3"
    others = [
        replace(SPEC, attempt=4),
        replace(SPEC, id="Orch-digits-ab12"),
        replace(SPEC, id="orch_digits_ab12"),
    ]
    names = {machine_name(spec) for spec in (SPEC, *others)}
    assert len(names) == 4
    elsewhere = replace(SPEC, offer=replace(PLAIN, zone="us-central1-b"))
    assert machine_name(elsewhere) == machine_name(SPEC)
    calls = {call_id(SPEC, 0), call_id(SPEC, 1), call_id(elsewhere, 0), *(call_id(s, 0) for s in others)}
    assert len(calls) == 6
    assert {str(uuid.UUID(call)) for call in calls} == calls
    assert call_id(SPEC, 0) == call_id(replace(SPEC, deadline=NOW), 0)


# ---------------------------------------------------------------- images, zones


def test_images_fit_processor_and_gpu() -> None:
    arm = replace(PLAIN, arch="arm64")
    assert families(PLAIN)[0] == Family("ubuntu-os-cloud", "ubuntu-2404-lts-amd64")
    assert families(arm)[0] == Family("ubuntu-os-cloud", "ubuntu-2404-lts-arm64")
    assert families(L4)[0].project == "deeplearning-platform-release"
    assert all("arm64" in family.name for family in families(replace(L4, arch="arm64")))
    assert "570" in families(replace(T4, accelerator="V100"))[0].name
    assert "580" in families(T4)[0].name


@pytest.mark.parametrize(
    ("reference", "named"),
    [
        ("mine", Named(Family("p", "mine"), maybe_family=True, maybe_image=True)),
        ("theirs/cu129", Named(Family("theirs", "cu129"), maybe_family=True, maybe_image=True)),
        (
            "projects/x/global/images/family/f",
            Named(Family("x", "f"), maybe_family=True, maybe_image=False),
        ),
        (
            "https://compute.example/compute/v1/projects/x/global/images/i",
            Named(Family("x", "i"), maybe_family=False, maybe_image=True),
        ),
    ],
)
def test_an_image_is_named_in_short_or_by_its_path(reference: str, named: Named) -> None:
    assert parse_name(reference, "p") == named


@pytest.mark.parametrize("reference", ["a/b/c", "projects/x/global/images/", "projects/x/zones/z"])
def test_what_names_no_image_is_refused(reference: str) -> None:
    with pytest.raises(ProviderError, match="neither"):
        parse_name(reference, "p")


def test_a_family_that_is_gone_gives_way_to_the_next() -> None:
    asked = []

    def newest(family: Family) -> Image | None:
        asked.append(family)
        return IMAGE if len(asked) == 2 else None

    assert resolve(families(L4), newest) == IMAGE
    assert asked == list(families(L4)[:2])
    with pytest.raises(ProviderError, match="common-cu129"):
        resolve(families(L4), lambda _: None)


def test_the_path_of_an_image() -> None:
    link = "https://www.googleapis.com/compute/v1/projects/p/global/images/i"
    assert path_of(link) == path_of(path_of(link)) == "projects/p/global/images/i"


def test_an_offer_of_a_region_becomes_one_of_each_zone() -> None:
    open_zone = replace(PLAIN, zone="", price=0.01)
    nowhere = replace(open_zone, region="mars-west1")
    zones = {"us-central1": ["us-central1-b", "us-central1-a"]}
    found = expanded([open_zone, nowhere, PLAIN], zones)
    assert [(offer.zone, offer.price) for offer in found] == [
        ("us-central1-a", 0.01),
        ("us-central1-b", 0.01),
        ("us-central1-a", 0.067),
    ]


# ---------------------------------------------------------------- the first boot


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("user_data", ["", SPEC.user_data, "#!/bin/sh\n" + "x" * 5000 + "\nEOF\n"])
def test_the_script_of_the_first_boot_is_shell(gpu: bool, user_data: str) -> None:
    script = startup_script(user_data, gpu=gpu, mark="orch-x-1 it's")
    assert script.startswith("#!/bin/sh\n")
    done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_machine_of_another_s_image_has_a_first_boot_too() -> None:
    """What the image's machine noted there must not count: it would never tell that it is ready."""
    scripts = [
        next(item["value"] for item in body["metadata"]["items"] if item["key"] == "startup-script")
        for body in (made(), made(attempt=2), made(deadline=SPEC.deadline + timedelta(seconds=1)))
    ]
    assert len(set(scripts)) == len(scripts)


@pytest.mark.parametrize(("made_of", "secure"), [("ubuntu-os-cloud", True), ("windows-cloud", None)])
def test_an_image_that_orch_made_boots_as_securely_as_what_it_was_made_of(
    made_of: str, secure: bool | None
) -> None:
    image = Image("projects/mine/global/images/orch-x", 10, made_of)
    body = instance(SPEC, Setting("p"), image, NOW)
    assert body["shieldedInstanceConfig"].get("enableSecureBoot") is secure
