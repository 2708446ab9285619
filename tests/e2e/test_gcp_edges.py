"""Compute Engine where it is awkward: spot taken back, no public address, other projects, what stopped."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clouds import gcp, tunnels
from tests.clouds.gcp.world import OPEN
from tests.e2e import interrupted
from tests.e2e.project import HELLO, Project, tiny

pytestmark = [
    pytest.mark.machine,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="each instance needs a network of its own, so root"),
]

PROFILE = """\
version: 1
name: tiny
cloud: gcp
region: us-central1
resources: {{cpus: 2, memory: 8 GiB, disk: 12 GiB, spot: {spot}}}
max_duration: 30m
train:
  command: python train.py
  outputs: [out]
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[gcp.Cloud]:
    if shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        pytest.skip("no sshd on this computer")
    with gcp.running() as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, cloud: gcp.Cloud) -> Iterator[Project]:
    """A tiny project for this cloud, not up yet; whatever a test leaves there is ended."""
    made = tiny(tmp_path / "project", tmp_path / "state", HELLO)
    made.environ.update(cloud.env)
    profile(made)
    yield made
    cloud.clear_faults()
    made.orch("down", "--discard")
    assert instances(cloud) == []


def profile(project: Project, *, spot: str = "false") -> None:
    (project.folder / "orch.yaml").write_text(PROFILE.format(spot=spot))


def up(project: Project, *, code: int = 0) -> dict[str, Any]:
    return project.json("up", "orch.yaml", "--yes", code=code)


def instances(cloud: gcp.Cloud) -> list[str]:
    return [instance["name"] for instance in cloud.state()["instances"]]


@pytest.mark.parametrize("after_s", [0.0, 1.5])
def test_a_spot_machine_taken_back_before_it_served_gives_way_to_the_next(
    project: Project, cloud: gcp.Cloud, after_s: float
) -> None:
    """The insert succeeds; the machine is preempted at once, before its maker looks, or while it boots."""
    profile(project, spot="true")
    cloud.settings(hostkey_s=4.0)  # long enough to be taken back before it answers

    def take_the_first() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = [one for one in cloud.state()["instances"] if one["status"] == "RUNNING"]
            if found:
                cloud.settings(hostkey_s=0.2)
                time.sleep(after_s)
                return cloud.preempt(found[0]["name"], notice_s=0)
            time.sleep(0.02)
        return None

    thief = threading.Thread(target=take_the_first)
    thief.start()
    try:
        held = up(project)
    finally:
        thief.join()
        cloud.settings(hostkey_s=0.2)
    first, second = held["attempts"]
    assert first["outcome"] == "capacity"
    assert "compute.instances.preempted" in first["message"]
    assert first["zone"] in first["message"]
    assert second["outcome"] == "accepted"
    assert second["zone"] == held["zone"] != first["zone"]
    assert instances(cloud) == [held["machine"]]


def test_a_first_boot_that_is_late_is_waited_for_by_name(project: Project, cloud: gcp.Cloud) -> None:
    """ssh answers before the startup script runs, and before Google's agent has made the account."""
    cloud.settings(startup_s=4.0, login_s=8.0)
    try:
        said = project.orch("up", "orch.yaml", "--yes")
    finally:
        cloud.settings(startup_s=0.0, login_s=0.0)
    assert "Waiting for the machine to answer: the end of its first boot" in said.err
    assert "Waiting for the machine to answer: the login of orch" in said.err


WAITS = """\
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked to end", flush=True))
print("training", flush=True)
time.sleep(120)
"""


def test_a_preempted_run_is_no_lost_run(project: Project, cloud: gcp.Cloud) -> None:
    """Google deletes the disk too: nothing can come home, but what happened is known."""
    profile(project, spot="true")
    (project.folder / "train.py").write_text(WAITS)
    held = up(project)
    process = project.start("train", "--run-id", "one")
    assert process.stdout is not None
    while b"training" not in (line := process.stdout.readline()):
        assert line, process.communicate()
    cloud.preempt(held["machine"], notice_s=4)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 11
    assert b"orch down && orch up " in err
    record = json.loads((project.folder / "runs/one/run.json").read_text())
    assert record["exit"]["reason"] == "preempted"
    assert "compute.instances.preempted" in record["exit"]["detail"]
    assert instances(cloud) == []


def test_a_spot_run_that_is_interrupted_twice_is_the_run_that_was_not(
    project: Project, cloud: gcp.Cloud
) -> None:
    """Its caller is gone before the first machine is. Each machine is another, in another place."""
    profile(project, spot="true")
    interrupted.write(project, times=2)

    def preempt(notice_s: float) -> None:
        cloud.preempt(project.json("status")["leases"][0]["machine"], notice_s=notice_s)

    caller = interrupted.begin(project)
    interrupted.take_at(project, caller, 3, lambda: interrupted.vanish(caller))
    preempt(2)
    caller = interrupted.begin(project)
    interrupted.take_at(project, caller, 6, lambda: preempt(8))
    record = interrupted.require_one_run(project, caller, "preempted", times=2)
    places = [(each["instance_type"], each["zone"]) for each in record["attempts"]]
    assert len(set(places)) == 3, places


# ---------------------------------------------------------------- no public address


def test_a_machine_behind_google_s_tunnel(project: Project, cloud: gcp.Cloud, tmp_path: Path) -> None:
    programs = tunnels.gcloud(tmp_path / "bin", cloud.url)
    through = {**OPEN, "name": "orch-iap", "network": "orch", "sourceRanges": ["35.235.240.0/20"]}
    cloud.settings(firewalls=[OPEN, through])
    project.environ.update(
        ORCH_GCP_INTERNAL="iap", ORCH_GCP_SUBNETWORK="orch", PATH=f"{programs}:{os.environ['PATH']}"
    )
    held = up(project)
    (shown,) = cloud.state()["instances"]
    assert not shown["networkInterfaces"][0].get("accessConfigs")
    assert project.json("train", "--run-id", "one")["exit"]["reason"] == "completed"
    assert project.orch("ssh", "--", "echo", "through").out == "through\n"
    asked = json.loads((programs / "asked").read_text().splitlines()[0])
    assert asked[:4] == ["gcloud", "compute", "start-iap-tunnel", held["machine"]]


def test_without_gcloud_nothing_is_made(project: Project, cloud: gcp.Cloud) -> None:
    project.environ.update(ORCH_GCP_INTERNAL="iap", PATH="/sbin")  # whatever is installed here
    before = len(cloud.calls("compute.instances.insert"))
    error = up(project, code=5)["error"]
    assert "gcloud, which is not installed here" in error["message"]
    assert "sdk.cloud.google.com" in error["next_command"]
    assert len(cloud.calls("compute.instances.insert")) == before


# ---------------------------------------------------------------- not seen, and stopped


def test_a_machine_in_another_project_is_not_gone(project: Project, cloud: gcp.Cloud) -> None:
    """Nothing is listed there: neither may `down` say that all is gone, nor `up` make a second one."""
    held = up(project)
    other = {"GOOGLE_CLOUD_PROJECT": "another"}
    before = len(cloud.calls("compute.instances.insert"))
    for words in (("status", "--live"), ("down",), ("up", "orch.yaml", "--yes"), ("train",)):
        error = project.json(*words, code=5, **other)["error"]
        assert error["next_command"] == "export GOOGLE_CLOUD_PROJECT=orch-test"
        assert held["machine"] in error["message"]
    assert len(cloud.calls("compute.instances.insert")) == before
    assert instances(cloud) == [held["machine"]]


def test_a_machine_that_powered_itself_off_is_named_with_its_cost(project: Project, cloud: gcp.Cloud) -> None:
    """As the idle watch does: Google keeps it, stopped, with its disk."""
    held = up(project)
    shell = project.start("ssh", "--", "sudo", "-n", "poweroff")
    end = time.monotonic() + 60
    while cloud.state()["instances"][0]["status"] != "TERMINATED":
        assert time.monotonic() < end
        time.sleep(0.1)
    shell.kill()
    shell.communicate()
    (lease,) = project.json("status", "--live")["leases"]
    assert lease["state"] == "stopped"
    assert "disk of 12 GiB costs about $0.0016/h" in lease["detail"]["stopped"]
    assert "costs about" in project.orch("status", "--live").out
    assert project.json("down")["machines"] == [held["machine"]]
    assert instances(cloud) == cloud.state()["disks"] == []


def test_a_fourth_machine_that_is_nowhere_to_be_had_leaves_none(project: Project, cloud: gcp.Cloud) -> None:
    path = project.folder / "orch.yaml"
    path.write_text(path.read_text().replace("{cpus: 2", "{nodes: 4, cpus: 2"))
    cloud.faults({"method": "compute.instances.insert", "kind": "stockout", "after": 3, "times": 99})
    refused = up(project, code=4)
    assert "nothing costs money" in refused["error"]["exists"]
    assert instances(cloud) == cloud.state()["disks"] == [] and project.json("status")["leases"] == []
