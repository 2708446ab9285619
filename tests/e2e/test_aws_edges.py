"""AWS where it is awkward: machines accepted and then refused, spot taken back, no public address."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clouds import tunnels
from tests.clouds.aws import Cloud
from tests.clouds.ground_aws import grounded
from tests.e2e import interrupted
from tests.e2e.project import HELLO, Project, tiny

pytestmark = [pytest.mark.machine, pytest.mark.slow]

SAVES = """\
import pathlib, signal, sys, time
out = pathlib.Path("out")
out.mkdir()
def save(*_):
    (out / "checkpoint").write_text("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("training", flush=True)
time.sleep(120)
"""
"""What a job that wants to be taken up again does when it is asked to end."""

PROFILE = """\
version: 1
name: tiny
cloud: aws
region: us-east-1
resources: {{cpus: 2, memory: 1 GiB, disk: 10 GiB, spot: {spot}}}
max_duration: 30m
train:
  command: python train.py
  outputs: [out]
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
    made = tiny(tmp_path / "project", machines, HELLO)
    profile(made)
    made.environ.update(cloud.env)
    yield made
    cloud.clear_faults()
    made.orch("down", "--discard")
    assert alive(cloud) == []


def profile(project: Project, *, spot: str = "false") -> None:
    (project.folder / "orch.yaml").write_text(PROFILE.format(spot=spot))


def up(project: Project, *, code: int = 0) -> dict[str, Any]:
    return project.json("up", "orch.yaml", "--yes", code=code)


def alive(cloud: Cloud) -> list[str]:
    return [i["id"] for i in cloud.instances() if i["state"] not in ("terminated", "shutting-down")]


# ---------------------------------------------------------------- accepted, and then refused


def test_a_zone_that_fails_after_it_accepted_gives_way_to_the_next(project: Project, cloud: Cloud) -> None:
    """RunInstances succeeds twice; the machine of the first zone ends at launch, for want of capacity."""
    cloud.faults({"action": "Boot", "code": "Server.InsufficientInstanceCapacity", "zone": "us-east-1a"})
    held = up(project)
    first, second = held["attempts"]
    assert (first["zone"], first["outcome"]) == ("us-east-1a", "capacity")
    assert "Server.InsufficientInstanceCapacity" in first["message"]
    assert (second["zone"], second["outcome"]) == (held["zone"], "accepted")
    assert held["zone"] != "us-east-1a"
    assert [request["status"] for request in cloud.requests("RunInstances")] == [200, 200]
    assert alive(cloud) == [held["machine"]]
    assert held["cost"] < held["price"] / 10  # of the machine that serves alone


@pytest.mark.parametrize(
    ("reason", "code", "words"),
    [
        ("Client.VolumeLimitExceeded", 4, ("L-7A658B76", "us-east-1", "servicequotas")),
        ("Client.InternalError", 5, ("KMS", "us-east-1a")),
    ],
)
def test_what_no_other_zone_would_mend_stops(
    project: Project, cloud: Cloud, reason: str, code: int, words: tuple[str, ...]
) -> None:
    cloud.faults({"action": "Boot", "code": reason, "times": -1})
    answer = up(project, code=code)
    error = answer["error"]
    for word in (reason, *words):
        assert word in error["message"]
    assert "nothing costs" in error["exists"]
    assert len(cloud.requests("RunInstances")) == 1
    (attempt,) = project.json("status")["leases"][0]["attempts"]
    assert answer["attempts"] == [attempt]
    assert attempt["outcome"] == {4: "quota", 5: "invalid"}[code]
    assert project.json("status")["leases"][0]["cost"] == 0


# ---------------------------------------------------------------- what is rented is there


def test_a_gpu_without_driver_is_noticed_before_anything_is_installed(project: Project, cloud: Cloud) -> None:
    """The newest image with drivers passes; a plain one does not, whatever the machine costs."""
    text = PROFILE.format(spot="false").replace(
        "memory: 1 GiB, disk: 10 GiB", "accelerator: T4, disk: 70 GiB"
    )
    (project.folder / "orch.yaml").write_text(text.replace("cpus: 2, ", ""))
    held = up(project)
    assert held["instance_type"].startswith("g4dn.")
    (image,) = cloud.client("ec2").describe_images(ImageIds=[held["detail"]["image"]])["Images"]
    assert "Nvidia Driver" in image["Name"]
    project.json("down")
    project.environ["ORCH_AWS_IMAGE"] = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*"
    error = up(project, code=5)["error"]
    assert "there is no nvidia-smi" in error["message"]
    assert re.search(r"ami-[0-9a-f]{17} has no driver", error["message"])
    assert "was deleted, and cost $" in error["exists"] and not alive(cloud)
    assert error["next_command"].startswith("unset ORCH_AWS_IMAGE; orch up ")


def test_any_cloud_is_the_one_with_the_best_offer(project: Project) -> None:
    """Chosen by the catalog: Google sells no A10G."""
    text = PROFILE.format(spot="false").replace("cloud: aws\nregion: us-east-1", "cloud: any")
    text = text.replace("cpus: 2, memory: 1 GiB, disk: 10 GiB", "accelerator: A10G, disk: 70 GiB")
    (project.folder / "orch.yaml").write_text(text)
    project.environ["ORCH_AWS_REGIONS"] = "us-east-1"
    held = up(project)
    assert (held["cloud"], held["instance_type"]) == ("aws", "g5.xlarge")
    assert up(project)["machine"] == held["machine"]
    assert [each["action"] for each in project.json("plan", "orch.yaml")["actions"]] == ["keep"]


# ---------------------------------------------------------------- spot


def follow_until(process: subprocess.Popen[bytes], words: bytes) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(process.communicate())


def test_a_spot_machine_taken_back_saves_and_what_it_saved_comes_home(project: Project, cloud: Cloud) -> None:
    """Two minutes in reality, here some seconds: heard inside, told to the job, pulled, and named."""
    profile(project, spot="true")
    (project.folder / "train.py").write_text(SAVES)
    held = up(project)
    process = project.start("train", "--run-id", "one")
    follow_until(process, b"training")
    cloud.rebalance(held["machine"])
    follow_until(process, b"orch: AWS says that this spot machine is likely to be taken back soon")
    cloud.interrupt(held["machine"], notice_s=40)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 11
    assert b"orch: AWS ends this spot machine at 20" in out
    assert b"orch up " in err  # the next command
    record = json.loads((project.folder / "runs/one/run.json").read_text())
    assert record["exit"]["reason"] == "preempted"
    assert "AWS ends this spot machine at" in record["exit"]["detail"]
    assert (project.folder / "runs/one/outputs/out/checkpoint").read_text() == "saved"
    told = [
        line["text"]
        for line in map(json.loads, (project.folder / "runs/one/trace.jsonl").read_text().splitlines())
        if line["event"] == "notice"
    ]
    assert len(told) == 2
    (run,) = project.json("status")["leases"][0]["runs"]
    assert run["state"] == "preempted"


def test_a_spot_machine_that_went_without_a_word_is_preempted_all_the_same(
    project: Project, cloud: Cloud
) -> None:
    profile(project, spot="true")
    (project.folder / "train.py").write_text(SAVES)
    held = up(project)
    process = project.start("train", "--run-id", "one", "--json")
    end = time.monotonic() + 60
    while not project.json("status")["leases"][0]["runs"]:
        assert time.monotonic() < end
        time.sleep(0.2)
    cloud.interrupt(held["machine"], notice_s=0)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 11
    error = json.loads(out)["error"]
    assert "Server.SpotInstanceTermination" in error["message"]
    assert error["next_command"].endswith("&& orch train --run-id one --retry-failed")
    assert json.loads((project.folder / "runs/one/run.json").read_text())["exit"]["reason"] == "preempted"
    again = up(project)
    assert again["machine"] != held["machine"]


def test_a_spot_run_that_is_interrupted_twice_is_the_run_that_was_not(project: Project, cloud: Cloud) -> None:
    """Once without a word; its caller is gone by then. Each machine is another, in another place."""
    profile(project, spot="true")
    interrupted.write(project, times=2)

    def interrupt(notice_s: float) -> None:
        cloud.interrupt(project.json("status")["leases"][0]["machine"], notice_s=notice_s)

    caller = interrupted.begin(project)
    interrupted.take_at(project, caller, 3, lambda: interrupted.vanish(caller))
    interrupt(0)
    caller = interrupted.begin(project)
    interrupted.take_at(project, caller, 6, lambda: interrupt(20))
    record = interrupted.require_one_run(project, caller, "preempted", times=2)
    places = [(each["instance_type"], each["zone"]) for each in record["attempts"]]
    assert len(set(places)) == 3, places


# ---------------------------------------------------------------- no public address


def instance(cloud: Cloud, identity: str) -> dict[str, Any]:
    answer = cloud.client("ec2").describe_instances(InstanceIds=[identity])
    found: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
    return found


def test_a_machine_at_its_private_address(project: Project, cloud: Cloud) -> None:
    project.environ["ORCH_AWS_ADDRESS"] = "private"
    held = up(project)
    shown = instance(cloud, held["machine"])
    assert "PublicIpAddress" not in shown
    assert held["detail"]["address"] == shown["PrivateIpAddress"]
    assert project.json("train", "--run-id", "one")["exit"]["reason"] == "completed"
    del project.environ["ORCH_AWS_ADDRESS"]  # who expects a public address finds none
    assert project.json("ssh", "true", code=8)["error"]["kind"] == "HostError"


def test_a_machine_behind_session_manager(project: Project, cloud: Cloud, tmp_path: Path) -> None:
    """By a program that forwards bytes, whose host key is verified as any other's."""
    programs = tunnels.aws(tmp_path / "bin", cloud.url)
    project.environ.update(ORCH_AWS_ADDRESS="ssm", PATH=f"{programs}:{os.environ['PATH']}")
    held = up(project)
    assert "PublicIpAddress" not in instance(cloud, held["machine"])
    assert project.json("train", "--run-id", "one")["exit"]["reason"] == "completed"
    said = project.orch("ssh", "--", "echo", "through")
    assert said.out == "through\n"
    asked = json.loads((programs / "asked").read_text().splitlines()[0])
    assert f"--target={held['machine']}" in asked
    other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a"
    (known,) = project.folder.glob(".orch/*/known_hosts")
    known.unlink()
    vouched = [{"Key": "orch-host-key", "Value": other}]
    cloud.client("ec2").create_tags(Resources=[held["machine"]], Tags=vouched)
    error = project.json("train", code=8)["error"]
    assert (error["kind"], "Nothing was sent" in error["message"]) == ("HostKeyError", True)


def test_without_the_program_nothing_is_made(project: Project, cloud: Cloud) -> None:
    project.environ.update(ORCH_AWS_ADDRESS="ssm", PATH="/sbin")  # whatever is installed here
    error = up(project, code=5)["error"]
    assert "which is not installed here" in error["message"]
    assert error["next_command"]
    assert cloud.requests("RunInstances") == []


# ---------------------------------------------------------------- a sweep


def test_a_sweep_leaves_nothing_where_one_of_its_machines_has_no_capacity(
    project: Project, cloud: Cloud
) -> None:
    """The second machine finds no zone: the first one trains its share."""
    profile(project)
    script = (project.folder / "orch.yaml").read_text().replace("python train.py", "python train.py {n}")
    (project.folder / "orch.yaml").write_text(script)
    sweep = ("sweep", "orch.yaml", "--matrix", "n=1..3", "--machines", "2", "--yes")
    cloud.faults({"action": "RunInstances", "code": "InsufficientInstanceCapacity", "skip": 1, "times": -1})
    done = project.json(*sweep)
    assert [point["reason"] for point in done["points"]] == ["completed"] * 3
    assert len({point["lease"] for point in done["points"]}) == 1
    assert done["left"] == [] and done["usd"] > 0 and alive(cloud) == []


# ---------------------------------------------------------------- several machines for one model


def test_a_fourth_machine_that_is_nowhere_to_be_had_leaves_none(project: Project, cloud: Cloud) -> None:
    profile(project)
    path = project.folder / "orch.yaml"
    path.write_text(path.read_text().replace("{cpus: 2", "{nodes: 4, cpus: 2"))
    cloud.faults({"action": "RunInstances", "code": "InsufficientInstanceCapacity", "skip": 3, "times": -1})
    refused = up(project, code=4)
    assert "nothing costs money" in refused["error"]["exists"]
    made = [request for request in cloud.requests("RunInstances") if request["status"] == 200]
    assert len(made) == 3
    assert alive(cloud) == [] and project.json("status")["leases"] == []
