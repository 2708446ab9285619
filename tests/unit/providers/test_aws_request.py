"""The one call that makes a machine of AWS: what it asks for, and what first boot does with it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import MachineSpec, Offer
from orchestrator.providers import no_contact
from orchestrator.providers.aws import confine, firstboot, hostkey, images, tags, tunnel
from orchestrator.providers.aws.request import (
    GIB,
    Image,
    Network,
    client_token,
    region_of_zone,
    run_instances,
)
from orchestrator.providers.aws.settings import Settings, read
from orchestrator.providers.upgrades import NO_UPGRADES
from orchestrator.runtime.agent import command

OFFER = Offer("aws", "g4dn.xlarge", "us-east-1", "us-east-1b", 4, 16 * GIB, "x86_64", 0.526)
IMAGE = Image("ami-1", "ubuntu noble", "ubuntu", "/dev/sda1", 8 * GIB, "x86_64")
NETWORK = Network("subnet-1", ("sg-1",), True)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a orch"


def spec(**changes: Any) -> MachineSpec:
    whole = MachineSpec(
        id="orch-tiny-1",
        attempt=2,
        offer=OFFER,
        disk=100 * GIB,
        deadline=datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC),
        labels={"orch-lease": "tiny-1", "orch-owner": "ann"},
        ssh_public_key=KEY,
        user_data="#!/bin/sh\necho hello\n",
        lasts=7200,
    )
    return replace(whole, **changes)


def asked(made: MachineSpec, host_key: hostkey.KeyPair | None = None) -> dict[str, Any]:
    return run_instances(made, IMAGE, NETWORK, user="ubuntu", host_key=host_key)


def document(request: dict[str, Any]) -> dict[str, Any]:
    first, _, rest = request["UserData"].partition("\n")
    assert first == "#cloud-config"
    value: dict[str, Any] = json.loads(rest)
    return value


@pytest.mark.parametrize("spot", [False, True])
def test_the_call_is_one_that_ec2_takes_by_its_own_model(spot: bool) -> None:
    shape = Session().get_service_model("ec2").operation_model("RunInstances").input_shape
    request = asked(spec(offer=replace(OFFER, spot=spot)), hostkey.make())
    report = ParamValidator().validate({**request, "ClientToken": "x"}, shape)
    assert not report.has_errors(), report.generate_report()


def test_everything_is_in_it() -> None:
    pair = hostkey.make()
    request = asked(spec(), pair)
    assert (request["MinCount"], request["MaxCount"]) == (1, 1)
    assert request["Placement"] == {"AvailabilityZone": "us-east-1b"}
    assert request["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert request["MetadataOptions"]["HttpTokens"] == "required"
    assert request["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    (disk,) = request["BlockDeviceMappings"]
    volume = {"VolumeSize": 100, "VolumeType": "gp3", "DeleteOnTermination": True}
    assert disk == {"DeviceName": "/dev/sda1", "Ebs": volume}
    (interface,) = request["NetworkInterfaces"]
    assert interface["DeleteOnTermination"] is True
    assert "IamInstanceProfile" not in request
    assert "InstanceMarketOptions" not in request
    kinds = [given["ResourceType"] for given in request["TagSpecifications"]]
    assert kinds == ["instance", "volume", "network-interface"]


def test_spot_ends_for_good() -> None:
    request = asked(spec(offer=replace(OFFER, spot=True)))
    assert request["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
    }
    assert "spot-instances-request" in [given["ResourceType"] for given in request["TagSpecifications"]]


def test_the_private_key_is_in_the_user_data_and_nowhere_else() -> None:
    pair = hostkey.make()
    request = asked(spec(), pair)
    secret = pair.private.splitlines()[2]
    assert secret in document(request)["ssh_keys"]["ed25519_private"]
    assert secret not in repr({key: value for key, value in request.items() if key != "UserData"})
    on_machine = {tag["Key"]: tag["Value"] for tag in request["TagSpecifications"][0]["Tags"]}
    assert on_machine["orch-host-key"] == pair.public
    on_volume = {tag["Key"] for tag in request["TagSpecifications"][1]["Tags"]}
    assert "orch-host-key" not in on_volume


def test_without_injection_no_key_travels() -> None:
    request = asked(spec())
    assert "ssh_keys" not in document(request)
    assert {"Key": "orch-proof", "Value": "console"} in request["TagSpecifications"][0]["Tags"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deadline": datetime(2026, 11, 21)}, "time zone"),
        ({"ssh_public_key": KEY + "\n" + KEY}, "OpenSSH line"),
        ({"user_data": "echo"}, "#!"),
        ({"user_data": "#!" + "x" * 20000}, "16384"),
        ({"disk": 4 * GIB}, "needs 8 GiB"),
        ({"disk": 70000 * GIB}, "65536"),
        ({"offer": replace(OFFER, arch="arm64")}, "arm64"),
        ({"labels": {"Name": "mine"}}, "Name"),
        ({"labels": {"aws:x": "mine"}}, "aws:x"),
        ({"labels": {"a": "x" * 257}}, "cannot be a tag"),
        ({"labels": {str(number): "" for number in range(50)}}, "50"),
    ],
)
def test_what_ec2_would_refuse_is_refused_here(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ProviderError, match=words) as refused:
        asked(spec(**changes))
    assert refused.value.fault is Fault.INVALID


@given(st.text(min_size=1, max_size=80), st.integers(0, 999), st.integers(0, 50))
def test_a_token_is_short_ascii_and_only_of_that_machine(name: str, attempt: int, life: int) -> None:
    one = spec(id=name, attempt=attempt)
    token = client_token(one, life)
    assert len(token) <= 64
    assert token.isascii()
    assert token == client_token(replace(one, disk=1), life)
    others = [
        client_token(replace(one, attempt=attempt + 1), life),
        client_token(replace(one, offer=replace(OFFER, zone="us-east-1c")), life),
        client_token(one, life + 1),
    ]
    assert token not in others


@pytest.mark.parametrize(
    ("zone", "region"),
    [("us-east-1a", "us-east-1"), ("ap-southeast-2b", "ap-southeast-2"), ("us-west-2-lax-1a", "us-west-2")],
)
def test_a_zone_names_its_region(zone: str, region: str) -> None:
    assert region_of_zone(zone) == region


def test_labels_come_back_as_they_went() -> None:
    ours = tags.tags_of(spec(), user="ubuntu", proof="injected", host_key="ssh-ed25519 AAAA")
    instance = {
        "InstanceId": "i-12345678",
        "State": {"Name": "running"},
        "InstanceType": "g4dn.xlarge",
        "Placement": {"AvailabilityZone": "us-east-1b"},
        "LaunchTime": datetime(2026, 11, 21, tzinfo=UTC),
        "Tags": [{"Key": key, "Value": value} for key, value in {**ours, "aws:ec2:fleet-id": "f"}.items()],
    }
    machine = tags.machine(instance, "us-east-1")
    assert machine.labels == spec().labels
    assert (machine.name, machine.price, machine.deadline) == ("orch-tiny-1-2", 0.526, spec().deadline)
    assert machine.detail["base"] == "/home/ubuntu/orch"


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261113", "ubuntu"),
        ("Deep Learning Base OSS Nvidia Driver GPU AMI (Amazon Linux 2023) 20261113", "ec2-user"),
        ("ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20261110", "ubuntu"),
        ("al2023-ami-2023.9.20261105.0-kernel-6.1-x86_64", "ec2-user"),
        ("debian-12-amd64-20260101-1", "admin"),
        ("somebody's own", ""),
    ],
)
def test_the_image_tells_who_logs_in(name: str, user: str) -> None:
    assert images.user_of(name) == user


@pytest.mark.parametrize(("arch", "deb"), [("x86_64", "amd64"), ("arm64", "arm64")])
def test_images_by_processor_and_gpu(arch: str, deb: str) -> None:
    plain = images.family(spec(offer=replace(OFFER, arch=arch, accelerator_count=0)))
    assert plain.parameters[0].endswith(f"/24.04/stable/current/{deb}/hvm/ebs-gp3/ami-id")
    gpu = images.family(spec(offer=replace(OFFER, arch=arch, accelerator="T4", accelerator_count=1)))
    assert gpu.parameters[0] == (
        f"/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
    )
    arm = "ARM64 " if arch == "arm64" else ""
    assert gpu.names[0] == (
        "amazon",
        f"Deep Learning {arm}Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) *",
    )


@pytest.mark.parametrize("gpu", ["V100", "M60", "K80"])
def test_gpus_before_turing_boot_the_proprietary_driver(gpu: str) -> None:
    """The open kernel modules know none of them (NVIDIA Driver Installation Guide, "Kernel Modules")."""
    chosen = images.family(spec(offer=replace(OFFER, accelerator=gpu, accelerator_count=1)))
    assert all("proprietary" in name for name in chosen.parameters)
    assert all("Proprietary" in pattern for _, pattern in chosen.names)


# ---------------------------------------------------------------- first boot, carried out


def armed(tmp_path: Path, lasts: float) -> Path:
    """Boot: run the deadline's script where `shutdown` only leaves a mark; the mark."""
    mark = tmp_path / "ended"
    (tmp_path / "shutdown").write_text(f'#!/bin/sh\necho "$@" > {mark}\n')
    (tmp_path / "shutdown").chmod(0o755)
    for name in ("poweroff", "halt", "systemctl"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    text = firstboot.user_data(
        lasts=lasts, user="ubuntu", authorized_key=KEY, script="", host_key=None
    ).partition("\n")[2]
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = json.loads(text)["bootcmd"][0]
    # the mark is all that we wait for: what the script would do a minute later, it does to nothing
    command[2] = command[2].replace("sleep 60; poweroff -f", ":")
    command[2] = command[2].replace(firstboot.NOTE, str(tmp_path / "lib/deadline"))
    subprocess.run(command, env={"PATH": path}, check=True, timeout=20)
    return mark


@pytest.mark.skipif(Path("/run/systemd/system").exists(), reason="would arm this computer's own timer")
def test_the_deadline_comes_without_systemd(tmp_path: Path) -> None:
    begun = time.monotonic()
    mark = armed(tmp_path, 3)
    assert not mark.exists()
    give_up = time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < give_up
        time.sleep(0.05)
    assert time.monotonic() > begun + 2  # whole seconds are counted


@pytest.mark.skipif(Path("/run/systemd/system").exists(), reason="would arm this computer's own timer")
def test_a_deadline_that_has_passed_ends_it_at_boot(tmp_path: Path) -> None:
    """A later boot goes by what the first one wrote down."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/deadline").write_text(str(int(time.time()) - 1))
    assert armed(tmp_path, 3600).read_text() == "-h now\n"


@pytest.mark.skipif(Path("/run/systemd/system").exists(), reason="would arm this computer's own timer")
@pytest.mark.parametrize("note", ["99999999999", "", "nonsense", "-5"])
def test_a_clock_that_was_set_back_and_a_broken_note_lengthen_nothing(tmp_path: Path, note: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/deadline").write_text(note)
    mark = armed(tmp_path, 1)
    give_up = time.monotonic() + 30
    while not mark.exists():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_the_deadline_is_the_first_thing_that_happens() -> None:
    first, nobody, upgrades, _, script = document(asked(spec()))["bootcmd"]
    assert first[-1] == "7200", "no time of anybody's clock"
    assert nobody[2] == no_contact.script("/home/ubuntu/orch").strip()
    assert upgrades[2] == NO_UPGRADES
    assert script[-1] == "#!/bin/sh\necho hello\n"


def test_no_package_is_upgraded_by_itself(tmp_path: Path) -> None:
    """lyulyul/shine-cluster#50: an unattended upgrade replaced the driver of a running GPU."""
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n')
    (tmp_path / "systemctl").chmod(0o755)
    script = NO_UPGRADES.replace("/etc/apt/apt.conf.d", str(tmp_path))
    subprocess.run(["sh", "-c", script], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=True)
    masked = [line for line in (tmp_path / "asked").read_text().splitlines() if line.startswith("mask")]
    assert any("apt-daily-upgrade.timer" in line for line in masked)
    assert any("unattended-upgrades.service" in line for line in masked)
    assert 'DPkg::Lock::Timeout "600";' in (tmp_path / "99orch").read_text()


def test_the_user_of_the_image_keeps_one_right(tmp_path: Path) -> None:
    """The program that the first boot installs, carried out where visudo takes all or refuses all."""
    for name, status in (("visudo", 0), ("poweroff", 0), ("gpasswd", 1)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    text = confine.program("ubuntu").replace("PATH=/usr/sbin:", f"PATH={tmp_path}:/usr/sbin:")
    text = text.replace("/etc/sudoers.d", str(tmp_path))
    subprocess.run(["sh", "-c", text], check=True)
    subprocess.run(["sh", "-c", text], check=True)
    assert (tmp_path / "zz-orch").read_text().splitlines() == [
        "ubuntu ALL=(ALL:ALL) !ALL",
        f'ubuntu ALL=(root) NOPASSWD: {tmp_path}/poweroff "", {confine.PROGRAM} ""',
    ]
    assert (tmp_path / "zz-orch").stat().st_mode & 0o777 == 0o440
    (tmp_path / "zz-orch").unlink()
    (tmp_path / "visudo").write_text("#!/bin/sh\nexit 1\n")
    assert subprocess.run(["sh", "-c", text], check=False).returncode != 0
    assert not (tmp_path / "zz-orch").exists(), "what visudo refuses locks everybody out"


def test_only_users_that_can_become_root_are_confined() -> None:
    for user, count in (("ubuntu", 4), ("root", 3)):
        text = firstboot.user_data(lasts=60, user=user, authorized_key=KEY, script="", host_key=None)
        assert len(json.loads(text.partition("\n")[2])["bootcmd"]) == count


def test_the_job_knows_where_the_machine_keeps_its_deadline() -> None:
    assert command.DEADLINE_HERE == firstboot.NOTE


@pytest.mark.parametrize("user", ["", "a b", "$(id)", "../x", "-rf"])
def test_users_are_names(user: str) -> None:
    with pytest.raises(ProviderError, match="ORCH_AWS_USER"):
        firstboot.user_data(lasts=60, user=user, authorized_key=KEY, script="", host_key=None)


# ---------------------------------------------------------------- the console, settings

LINES = ["ssh-ed25519 AAAAC3Nz comment", "ssh-rsa AAAAB3Nz"]


def block(*lines: str, prefix: str = "") -> str:
    whole = ["-----BEGIN SSH HOST KEY KEYS-----", *lines, "-----END SSH HOST KEY KEYS-----"]
    return "".join(f"{prefix}{line}\r\n" for line in whole)


def test_the_console_gives_the_keys_that_it_shows_whole() -> None:
    keys = ("ssh-ed25519 AAAAC3Nz", "ssh-rsa AAAAB3Nz")
    assert hostkey.from_console("boot\n" + block(*LINES) + "done\n") == keys
    assert hostkey.from_console(block(*LINES) + block(*LINES)) == keys
    assert hostkey.from_console(block(*LINES, prefix="[   12.5] cloud-init[7]: ")) == keys


def test_the_console_proves_nothing_where_it_contradicts_itself_or_stops_short() -> None:
    assert hostkey.from_console(block(*LINES) + block("ssh-ed25519 AAAAC3Nother")) == ()
    assert hostkey.from_console(block(*LINES).partition("-----END")[0]) == ()
    assert hostkey.from_console("") == ()


def test_settings_are_read_and_nonsense_is_named() -> None:
    assert read({}) == Settings()
    said = {"ORCH_AWS_REGIONS": "us-east-1, eu-west-1,", "ORCH_AWS_ADDRESS": "private"}
    assert read(said) == Settings(regions=("us-east-1", "eu-west-1"), address="private")
    assert [read({"ORCH_AWS_ADDRESS": way}).public for way in ("public", "private", "ssm")] == [
        True,
        False,
        False,
    ]
    with pytest.raises(ProviderError, match="ORCH_AWS_ADDRESS is 'none'; it must be public, private or ssm"):
        read({"ORCH_AWS_ADDRESS": "none"})


def test_the_tunnel_s_command_and_profile() -> None:
    assert tunnel.proxy_command("i-0123456789abcdef0", "eu-west-1") == (
        *("aws", "ssm", "start-session", "--region=eu-west-1", "--target=i-0123456789abcdef0"),
        *("--document-name=AWS-StartSSHSession", "--parameters=portNumber=22"),
    )
