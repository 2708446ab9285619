"""The commands on an emulated AWS whose instances are real machines, by boto3 over HTTP."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clouds.aws import Cloud
from tests.clouds.ground_aws import grounded
from tests.e2e.project import Project, tiny

pytestmark = [pytest.mark.machine, pytest.mark.slow]

PROFILE = """\
version: 1
name: tiny
cloud: aws
region: us-east-1
resources: {cpus: 2, memory: 1 GiB, disk: 10 GiB}
max_duration: 30m
train:
  command: python train.py
  outputs: [out]
"""
SCRIPT = """\
import pathlib, platform
pathlib.Path("out").mkdir()
pathlib.Path("out/where").write_text(platform.node())
print("trained")
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with grounded() as made:
        yield made


@pytest.fixture
def project(cloud: Cloud, tmp_path: Path, machines: Path) -> Iterator[Project]:
    """A tiny project for that cloud, not up yet; whatever a test leaves running is ended."""
    cloud.clear_faults()
    cloud.forget_requests()
    made = tiny(tmp_path / "project", machines, SCRIPT)
    (made.folder / "orch.yaml").write_text(PROFILE)
    made.environ.update(cloud.env)
    yield made
    cloud.clear_faults()
    cloud.set(quotas={}, access_key=cloud.env["AWS_ACCESS_KEY_ID"])
    made.orch("down", "--discard")
    assert alive(cloud) == []


def up(project: Project, *more: str, code: int = 0) -> dict[str, Any]:
    return project.json("up", "orch.yaml", "--yes", *more, code=code)


def alive(cloud: Cloud) -> list[dict[str, Any]]:
    """What runs and costs, by the cloud's own account."""
    pages = cloud.client("ec2").get_paginator("describe_instances").paginate()
    found = [i for page in pages for reservation in page["Reservations"] for i in reservation["Instances"]]
    return [
        instance for instance in found if instance["State"]["Name"] not in ("terminated", "shutting-down")
    ]


def tags(thing: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in thing["Tags"]}


def user_data(cloud: Cloud, instance: str) -> dict[str, Any]:
    answer = cloud.client("ec2").describe_instance_attribute(InstanceId=instance, Attribute="userData")
    text = base64.b64decode(answer["UserData"]["Value"]).decode()
    first, _, rest = text.partition("\n")
    assert first == "#cloud-config"
    document: dict[str, Any] = json.loads(rest)
    return document


def pinned(project: Project) -> str:
    (known,) = project.folder.glob(".orch/*/known_hosts")
    return known.read_text()


def test_up_train_down(project: Project, cloud: Cloud) -> None:
    held = up(project)
    assert held["state"] == "running"
    assert [attempt["outcome"] for attempt in held["attempts"]] == ["accepted"]
    (instance,) = alive(cloud)
    assert instance["InstanceId"] == held["machine"]
    made = tags(instance)
    (volume,) = cloud.client("ec2").describe_volumes()["Volumes"]
    for key in ("orch-lease", "orch-owner", "orch-spec", "orch-expires-at", "orch-machine", "Name"):
        assert tags(volume)[key] == made[key]
    assert (volume["Size"], volume["VolumeType"]) == (10, "gp3")
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    assert "IamInstanceProfile" not in instance

    # the key that travelled is not the one that the machine is known by now
    travelled = user_data(cloud, held["machine"])["ssh_keys"]["ed25519_public"]
    assert made["orch-proof"] == "renewed"
    assert made["orch-host-key"] not in ("", travelled)
    assert pinned(project).split(maxsplit=1) == [held["machine"], made["orch-host-key"] + "\n"]

    assert up(project)["machine"] == held["machine"]
    run = project.json("train", "--run-id", "one")
    assert run["exit"]["reason"] == "completed"
    assert (project.folder / "runs/one/outputs/out/where").read_text()
    report = project.json("down")
    assert report["machines"] == [held["machine"]]
    assert report["proven_gone"] is True
    assert alive(cloud) == []
    assert cloud.client("ec2").describe_volumes()["Volumes"] == []


def test_two_zones_are_sold_out_and_the_third_serves(project: Project, cloud: Cloud) -> None:
    for zone in ("us-east-1a", "us-east-1b"):
        cloud.faults(
            {"action": "RunInstances", "code": "InsufficientInstanceCapacity", "zone": zone, "times": -1}
        )
    held = up(project)
    told = [(attempt["zone"], attempt["outcome"]) for attempt in held["attempts"]]
    assert told[:2] == [("us-east-1a", "capacity"), ("us-east-1b", "capacity")]
    assert told[2] == (held["zone"], "accepted")
    assert held["zone"] not in ("us-east-1a", "us-east-1b")
    assert "InsufficientInstanceCapacity" in held["attempts"][0]["message"]
    assert [r["code"] for r in cloud.requests("RunInstances")][:2] == ["InsufficientInstanceCapacity"] * 2
    assert len(alive(cloud)) == 1


def test_a_quota_stops_at_once_and_is_named(project: Project, cloud: Cloud) -> None:
    cloud.set(quotas={"L-1216C47A": 0})
    error = up(project, code=4)["error"]
    for words in ("L-1216C47A", "us-east-1", "Running On-Demand Standard"):
        assert words in error["message"]
    assert "servicequotas" in error["next_command"]
    assert cloud.requests("RunInstances") == [], "it is known before anybody is asked"
    assert alive(cloud) == []


def test_spot_is_one_time_and_ends_with_its_machine(project: Project, cloud: Cloud) -> None:
    held = up(project, "--set", "resources.spot=true")
    (instance,) = alive(cloud)
    assert instance["InstanceLifecycle"] == "spot"
    (wanted,) = cloud.client("ec2").describe_spot_instance_requests(
        SpotInstanceRequestIds=[instance["SpotInstanceRequestId"]]
    )["SpotInstanceRequests"]
    assert wanted["Type"] == "one-time"
    assert tags(wanted)["orch-machine"] == tags(instance)["orch-machine"]
    cloud.kill(held["machine"])
    deadline = time.monotonic() + 30
    while project.json("status", "--live")["leases"][0]["state"] != "gone":
        assert time.monotonic() < deadline


def test_two_ups_at_once_make_one_machine(project: Project, cloud: Cloud) -> None:
    processes = [project.start("up", "orch.yaml", "--yes", "--json") for _ in range(2)]
    answers = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    assert len({json.loads(out)["machine"] for out, _ in answers}) == 1
    assert len(alive(cloud)) == 1


def test_the_same_machine_asked_for_by_two_strangers_at_once_is_one(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lock between them, and each with a host key of its own: the cloud alone decides."""
    from datetime import UTC, datetime, timedelta

    from orchestrator.model import Bound, MachineSpec, Need
    from orchestrator.providers import open_provider

    for name, value in project.environ.items():
        monkeypatch.setenv(name, value)
    providers = [open_provider("aws") for _ in range(3)]
    offer = providers[0].offers(Need("aws", Bound(2), Bound(1 << 30), arch="x86_64", region="us-east-1"))[0]
    end = datetime.now(UTC) + timedelta(minutes=10)
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a nobody"
    spec = MachineSpec("race", 0, offer, 10 << 30, end, {"orch-lease": "race"}, key)
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda provider=provider: made.append(provider.create(spec).id))
        for provider in providers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(made) == 3
    assert len(set(made)) == 1
    found = providers[0].list({"orch-lease": "race"})
    assert [machine.id for machine in found] == made[:1]
    providers[0].delete(found[0])
    while providers[0].list({"orch-lease": "race"}):
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("answer", "code"),
    [({"code": "SomethingNew", "status": 400}, 5), ({"code": "InternalError"}, 0), ({"drop": True}, 0)],
    ids=["unknown", "server-error", "connection-lost"],
)
def test_a_machine_made_without_an_answer_is_found_again(
    project: Project, cloud: Cloud, answer: dict[str, Any], code: int
) -> None:
    cloud.faults({"action": "RunInstances", "after": True, **answer})
    up(project, code=code)
    assert len(cloud.instances()) >= 1
    held = up(project)
    (instance,) = alive(cloud)
    assert instance["InstanceId"] == held["machine"]


def test_killed_while_it_creates_it_finds_its_machine(project: Project, cloud: Cloud) -> None:
    """The call arrives; who made it is dead before the answer does."""
    cloud.faults({"action": "RunInstances", "after": True, "delay_s": 5})
    process = project.start("up", "orch.yaml", "--yes")
    deadline = time.monotonic() + 60
    while not [i for i in cloud.instances() if i.get("state", "") != "terminated"]:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.communicate()
    held = up(project)
    (instance,) = alive(cloud)
    assert instance["InstanceId"] == held["machine"]


def test_a_machine_with_another_host_key_is_refused(project: Project, cloud: Cloud) -> None:
    """What answers cannot prove to be what EC2 vouches for, on a computer that never met it before."""
    held = up(project)
    other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a"
    (known,) = project.folder.glob(".orch/*/known_hosts")
    known.unlink()
    vouched = [{"Key": "orch-host-key", "Value": other}]
    cloud.client("ec2").create_tags(Resources=[held["machine"]], Tags=vouched)
    error = project.json("train", code=8)["error"]
    assert error["kind"] == "HostKeyError"
    assert "Nothing was sent" in error["message"]


def test_a_machine_can_prove_itself_by_its_console(project: Project, cloud: Cloud) -> None:
    """No key travels then; what the console showed first is kept, whatever it shows later."""
    project.environ["ORCH_AWS_HOST_KEY"] = "console"
    held = up(project)
    (instance,) = alive(cloud)
    assert "ssh_keys" not in user_data(cloud, held["machine"])
    assert tags(instance)["orch-proof"] == "console"
    shown = cloud.client("ec2").get_console_output(InstanceId=held["machine"], Latest=True)["Output"]
    assert tags(instance)["orch-host-key"] in shown
    assert pinned(project) == f"{held['machine']} {tags(instance)['orch-host-key']}\n"


def test_a_security_group_that_is_not_there_is_named(project: Project, cloud: Cloud) -> None:
    project.environ["ORCH_AWS_SECURITY_GROUP"] = "sg-0123456789abcdef0"
    assert "ORCH_AWS_SECURITY_GROUP" in up(project, code=5)["error"]["message"]
    assert alive(cloud) == []


def test_a_machine_that_powers_itself_off_is_terminated(project: Project, cloud: Cloud) -> None:
    held = up(project)
    project.start("ssh", "--", "sudo", "-n", "poweroff").communicate(timeout=60)
    deadline = time.monotonic() + 60
    while alive(cloud):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert project.json("status", "--live")["leases"][0]["state"] == "gone"
    ended = [i for i in cloud.instances() if i.get("id", i.get("InstanceId")) == held["machine"]]
    assert len(ended) == 1


def test_its_deadline_is_armed_before_anything_else(project: Project, cloud: Cloud) -> None:
    held = up(project)
    script = user_data(cloud, held["machine"])["bootcmd"][0]
    assert script[-1] == str(30 * 60), "seconds from its start: no time of this computer's clock"
    request = cloud.requests("RunInstances")[0]["parameters"]
    assert request["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert re.fullmatch(r"[0-9a-f]{64}", request["ClientToken"])


def test_a_job_cannot_stop_the_deadline(project: Project) -> None:
    """It runs as the user of the image, who may do everything by sudo; the job may not."""
    (project.folder / "train.py").write_text(
        "import pathlib, subprocess\n"
        "done = subprocess.run(['sudo', '-n', 'sh', '-c', 'rm -f /var/lib/orch/deadline; id -u'],\n"
        "                      capture_output=True, text=True)\n"
        "pathlib.Path('out').mkdir()\n"
        "pathlib.Path('out/said').write_text(f'{done.returncode} {done.stdout!r}')\n"
        "pathlib.Path('out/note').write_text(pathlib.Path('/var/lib/orch/deadline').read_text())\n"
    )
    up(project)
    asked = project.start("ssh", "--", "cat", "/usr/local/sbin/orch-confine", "/var/lib/orch/deadline")
    assert b"zz-orch" in asked.communicate(timeout=60)[0]
    project.json("train", "--run-id", "bold")
    said = (project.folder / "runs/bold/outputs/out/said").read_text()
    assert not said.startswith("0 ") and "'0" not in said
    assert int((project.folder / "runs/bold/outputs/out/note").read_text()) > time.time()


def test_wrong_credentials_are_an_auth_error(project: Project, cloud: Cloud) -> None:
    cloud.set(access_key="AKIAIOSFODNN7ANOTHER")
    error = up(project, code=3)["error"]
    assert "AuthFailure" in error["message"]
    cloud.set(access_key=cloud.env["AWS_ACCESS_KEY_ID"])


def test_no_credentials_at_all_are_an_auth_error(project: Project) -> None:
    without = Project(project.folder, project.state, {**project.environ, "AWS_ACCESS_KEY_ID": ""})
    without.environ["AWS_SECRET_ACCESS_KEY"] = ""
    error = up(without, code=3)["error"]
    assert "credentials" in error["message"]
    assert without.json("status")["leases"] == [], "nobody was asked for a machine, so none is leased"
    without.json("down")
