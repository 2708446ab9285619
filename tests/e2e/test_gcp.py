"""`orch` on Google Compute Engine: the real client library over HTTP, an emulated cloud, real machines."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator import hosts
from orchestrator.errors import Fault, HostKeyError, ProviderError
from orchestrator.model import Bound, Endpoint, Machine, MachineSpec, Need, Offer
from orchestrator.providers.gcp.provider import GcpProvider
from orchestrator.providers.retry import RetryingProvider
from tests.clouds import gcp
from tests.e2e.project import Project, tiny

pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(os.geteuid() != 0, reason="each instance needs a network of its own, so root"),
]

INSERT = "compute.instances.insert"
PROFILE = """\
version: 1
name: tiny
cloud: gcp
region: us-central1
resources: {{cpus: 2, memory: 8 GiB, disk: 12 GiB, spot: {spot}}}
max_duration: {duration}
train:
  command: python train.py
"""
WHO = """\
import getpass, pathlib, six
pathlib.Path("who.txt").write_text(getpass.getuser() + six.__version__)
"""
LIE_ABOUT_THE_HOST_KEY = """\
import base64, os, urllib.request
blob = b"".join(len(part).to_bytes(4, "big") + part for part in (b"ssh-ed25519", os.urandom(32)))
url = "http://metadata.google.internal/computeMetadata/v1/instance/guest-attributes/hostkeys/ssh-ed25519"
request = urllib.request.Request(url, base64.b64encode(blob), {"Metadata-Flavor": "Google"}, method="PUT")
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10).close()
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
    made = tiny(tmp_path / "project", tmp_path / "state", "print('hello')\n")
    made.environ.update(cloud.env)
    profile(made)
    yield made
    cloud.clear_faults()
    made.orch("down", "--discard")
    assert instances(cloud) == []


def profile(project: Project, *, spot: str = "false", duration: str = "30m") -> None:
    (project.folder / "orch.yaml").write_text(PROFILE.format(spot=spot, duration=duration))


def up(project: Project, *, code: int = 0) -> dict[str, Any]:
    return project.json("up", "orch.yaml", "--yes", code=code)


def instances(cloud: gcp.Cloud) -> list[str]:
    return [instance["name"] for instance in cloud.state()["instances"]]


def inserts(cloud: gcp.Cloud, since: int) -> list[dict[str, Any]]:
    return cloud.calls(INSERT)[since:]


def until(holds: Callable[[], bool], patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.2)


# ---------------------------------------------------------------- the three commands


def test_up_train_down(project: Project, cloud: gcp.Cloud) -> None:
    (project.folder / "train.py").write_text(WHO)
    before = len(cloud.calls(INSERT))
    held = up(project)
    assert held["state"] == "running"
    assert held["cloud"] == "gcp"
    assert held["zone"].startswith("us-central1-")
    assert held["detail"]["image"].startswith("projects/ubuntu-os-cloud/global/images/ubuntu-2404")
    assert [attempt["outcome"] for attempt in held["attempts"]] == ["accepted"]
    (insert,) = inserts(cloud, before)
    assert insert["body"]["scheduling"]["instanceTerminationAction"] == "DELETE"
    assert 1700 < int(insert["body"]["scheduling"]["maxRunDuration"]["seconds"]) <= 1800

    again = up(project)
    assert again["machine"] == held["machine"]
    assert len(inserts(cloud, before)) == 1

    record = project.json("train", "--run-id", "one")
    assert record["exit"]["reason"] == "completed"
    assert (project.folder / "runs/one/outputs/who.txt").read_text() == "orch1.17.0"
    down = project.json("down")
    assert down["proven_gone"] is True
    assert down["machines"] == [held["machine"]]
    assert instances(cloud) == []
    assert cloud.state()["disks"] == []


def test_spot(project: Project, cloud: gcp.Cloud) -> None:
    profile(project, spot="true")
    before = len(cloud.calls(INSERT))
    held = up(project)
    assert held["detail"]["spot"] is True
    (insert,) = inserts(cloud, before)
    scheduling = insert["body"]["scheduling"]
    assert scheduling["provisioningModel"] == "SPOT"
    assert scheduling["onHostMaintenance"] == "TERMINATE"
    assert scheduling["automaticRestart"] is False
    cloud.preempt(held["machine"], notice_s=1)
    until(lambda: instances(cloud) == [], 30)


# ---------------------------------------------------------------- when Google says no


@pytest.mark.parametrize("kind", ["stockout", "stockout_details", "preempted"])
def test_no_room_in_two_zones_and_a_machine_in_the_third(
    project: Project, cloud: gcp.Cloud, kind: str
) -> None:
    cloud.faults({"method": INSERT, "kind": kind, "times": 2})
    before = len(cloud.calls(INSERT))
    held = up(project)
    attempts = held["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["capacity", "capacity", "accepted"]
    assert len({attempt["zone"] for attempt in attempts}) == 3
    assert attempts[0]["zone"] in attempts[0]["message"]
    assert held["zone"] == attempts[2]["zone"]
    assert len(inserts(cloud, before)) == 3
    assert instances(cloud) == [held["machine"]]


@pytest.mark.parametrize("kind", ["quota", "quota_http"])
def test_a_quota_stops_and_says_where_to_ask(project: Project, cloud: gcp.Cloud, kind: str) -> None:
    cloud.faults({"method": INSERT, "kind": kind, "metric": "CPUS", "limit": 1.0, "times": 9})
    before = len(cloud.calls(INSERT))
    error = up(project, code=4)["error"]
    for word in ("CPUS", "us-central1", "iam-admin/quotas?project=orch-test"):
        assert word in error["message"]
    if kind == "quota":
        assert "are in use" in error["message"]
    assert len(inserts(cloud, before)) == 1
    assert instances(cloud) == []


def test_who_is_not_allowed_learns_which_permission(project: Project, cloud: gcp.Cloud) -> None:
    cloud.settings(denied=["compute.instances.create"])
    try:
        error = up(project, code=3)["error"]
    finally:
        cloud.settings(denied=[])
    assert "compute.instances.create" in error["message"]
    assert "anonymous" in error["message"]


def test_what_passes_is_tried_again(project: Project, cloud: gcp.Cloud) -> None:
    """Answers that are lost after the machine was made, and refusals that pass."""
    cloud.faults(
        {"method": INSERT, "kind": "too_many"},
        {"method": INSERT, "kind": "reset", "after_effect": True},
        {"method": "compute.zoneOperations.get", "kind": "unavailable"},
        {"method": "compute.instances.aggregatedList", "kind": "rate_limit"},
    )
    before = len(cloud.calls(INSERT))
    held = up(project)
    assert [attempt["outcome"] for attempt in held["attempts"]] == ["accepted"]
    bodies = [insert["body"] for insert in inserts(cloud, before)]
    assert all(body == bodies[0] for body in bodies)
    assert instances(cloud) == [held["machine"]]


# ---------------------------------------------------------------- one machine, the right one


def test_two_ups_at_once_are_one_machine(project: Project, cloud: gcp.Cloud) -> None:
    both = [project.start("up", "orch.yaml", "--yes", "--json") for _ in range(2)]
    ended = [process.communicate(timeout=200) for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    assert len(instances(cloud)) == 1


def test_two_creates_at_once_are_one_machine(cloud: gcp.Cloud, tmp_path: Path) -> None:
    """Without the lock of a folder: two computers with the same lease."""
    spec = order("twins", public_key(tmp_path))
    made: list[Machine] = []
    providers = [provider_of(cloud) for _ in range(2)]
    threads = [threading.Thread(target=lambda p=p: made.append(p.create(spec))) for p in providers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert [machine.id for machine in made] == ["twins-0", "twins-0"]
        assert instances(cloud) == ["twins-0"]
    finally:
        end(providers[0])


def test_a_name_that_another_call_holds_for_a_moment(cloud: gcp.Cloud, tmp_path: Path) -> None:
    cloud.faults({"method": INSERT, "kind": "conflict"})
    provider = provider_of(cloud)
    try:
        assert provider.create(order("held", public_key(tmp_path))).id == "held-0"
        assert instances(cloud) == ["held-0"]
    finally:
        end(provider)


def test_where_os_login_is_demanded_the_key_goes_through_the_login_profile(
    project: Project, cloud: gcp.Cloud
) -> None:
    (project.folder / "train.py").write_text(WHO)
    project.environ["CLOUDSDK_CORE_ACCOUNT"] = "ann@example.com"
    cloud.settings(policies={"compute.requireOsLogin": {"booleanPolicy": {"enforced": True}}})
    try:
        held = up(project)
        assert held["detail"]["base"] == "/home/ann_example_com/orch"
        assert len(cloud.state()["login_keys"]["ann@example.com"]) == 1
        project.orch("train", "--run-id", "who")
        assert (project.folder / "runs/who/outputs/who.txt").read_text().startswith("ann_example_com")
        project.orch("down")
        assert cloud.state()["login_keys"]["ann@example.com"] == {}
    finally:
        cloud.settings(policies={})


def test_a_machine_that_shows_another_key_gets_no_byte(cloud: gcp.Cloud, tmp_path: Path) -> None:
    key = public_key(tmp_path)
    lie = f"#!/bin/sh\n(sleep 2; python3 - <<'END'\n{LIE_ABOUT_THE_HOST_KEY}END\n) >/dev/null 2>&1 &\n"
    provider = provider_of(cloud)
    machine = provider.create(order("liar", key, lie))
    try:
        time.sleep(4)
        found: list[Endpoint] = []
        until(lambda: bool(found.extend(e for e in [provider.endpoint(machine)] if e) or found), 60)
        with pytest.raises(HostKeyError, match="Nothing was sent"):
            known = tmp_path / "known"
            hosts.connect(found[0], identity=tmp_path / "id", known_hosts=known, machine_id=machine.id)
        assert not known.exists()
    finally:
        end(provider)


def test_the_base_folder_needs_no_startup_script(cloud: gcp.Cloud, tmp_path: Path) -> None:
    cloud.settings(startup_s=3600.0)
    provider = GcpProvider({**os.environ, **cloud.env}, silent_s=1.0)
    machine = provider.create(order("early", public_key(tmp_path)))
    try:
        until(lambda: bool(provider.endpoint(machine)), 60)
        endpoint = provider.endpoint(machine)
        assert isinstance(endpoint, Endpoint)
        known = tmp_path / "known"
        door = hosts.connect(endpoint, identity=tmp_path / "id", known_hosts=known, machine_id=machine.id)
        with closing(door) as host:
            made = host.run(("mkdir", "-p", str(machine.detail["base"])))
            assert made.returncode == 0, made.stderr
    finally:
        cloud.settings(startup_s=0.0)
        provider.delete(machine)
        until(lambda: not provider.list({}), 30)


def test_a_host_key_that_changes_is_not_believed(project: Project) -> None:
    (project.folder / "train.py").write_text(LIE_ABOUT_THE_HOST_KEY)
    up(project)
    project.json("train", "--run-id", "lie")
    error = project.json("train", "--run-id", "next", code=8)["error"]
    assert error["kind"] == "HostKeyError"


@pytest.mark.slow
def test_google_ends_it_at_its_deadline_with_nobody_there(project: Project, cloud: gcp.Cloud) -> None:
    """Google's minute begins late, when the machine runs: the machine itself must not power off before it."""
    profile(project, duration="1m")
    cloud.settings(accept_s=4.0)
    try:
        held = up(project)
    finally:
        cloud.settings(accept_s=0.05)
    assert instances(cloud) == [held["machine"]]
    until(lambda: instances(cloud) == [], 100)
    assert time.time() > held["deadline"] - 1
    assert cloud.state()["disks"] == []


def test_a_zone_without_the_type_gives_way_to_the_next(cloud: gcp.Cloud, tmp_path: Path) -> None:
    """Which zones sell what is not all recorded: Google's plain 400 must not end the search."""
    spec = order("elsewhere", public_key(tmp_path))
    offer = replace(spec.offer, instance_type="a2-highgpu-1g", zone="us-central1-d", accelerator="A100")
    with pytest.raises(ProviderError) as refused:
        provider_of(cloud).create(replace(spec, offer=offer, disk=60 << 30))
    assert (refused.value.fault, refused.value.code) == (Fault.CAPACITY, "TypeNotInZone")


def test_what_google_refuses_is_told_by_its_field(cloud: gcp.Cloud, tmp_path: Path) -> None:
    spec = order("nowhere", public_key(tmp_path))
    with pytest.raises(ProviderError, match="subnetwork") as refused:
        provider_of(cloud, ORCH_GCP_SUBNETWORK="no-such").create(spec)
    assert refused.value.fault is Fault.INVALID


def test_another_s_machine_of_the_same_name_is_left_alone(cloud: gcp.Cloud, tmp_path: Path) -> None:
    spec = order("taken", public_key(tmp_path))
    provider = provider_of(cloud)
    provider.create(spec)
    try:
        with pytest.raises(ProviderError) as refused:
            provider.create(replace(spec, labels={"orch-lease": "another"}))
        assert (refused.value.fault, refused.value.code) == (Fault.CONFLICT, "NameTaken")
        assert provider.list({"orch-lease": "another"}) == []
        assert [machine.name for machine in provider.list({"orch-lease": "taken"})] == ["taken-0"]
    finally:
        end(provider)


def test_a_machine_without_a_public_address(cloud: gcp.Cloud, tmp_path: Path) -> None:
    provider = provider_of(cloud, ORCH_GCP_INTERNAL="1", ORCH_GCP_SUBNETWORK="orch")
    machine = provider.create(order("inside", public_key(tmp_path)))
    try:
        until(lambda: bool(provider.endpoint(machine)), 60)
        (shown,) = cloud.state()["instances"]
        (interface,) = shown["networkInterfaces"]
        assert not interface.get("accessConfigs")
        endpoint = provider.endpoint(machine)
        assert isinstance(endpoint, Endpoint)
        assert endpoint.address == interface["networkIP"]
        assert "start-iap-tunnel inside-0 22" in provider.list({})[0].detail["tunnel"]
    finally:
        end(provider)


# ---------------------------------------------------------------- below the command line


def provider_of(cloud: gcp.Cloud, **environ: str) -> RetryingProvider:
    return RetryingProvider(GcpProvider({**os.environ, **cloud.env, **environ}))


def order(name: str, key: str, user_data: str = "") -> MachineSpec:
    need = Need("gcp", cpus=Bound(2), memory=Bound(8 << 30), zone="us-central1-a")
    offer = Offer("gcp", "e2-standard-2", "us-central1", "us-central1-a", 2, 8 << 30, "x86_64", 0.067)
    return MachineSpec(
        id=name,
        attempt=0,
        offer=offer,
        disk=need.disk,
        deadline=datetime.now(UTC) + timedelta(minutes=10),
        labels={"orch-lease": name},
        ssh_public_key=key,
        user_data=user_data,
    )


def public_key(folder: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "id"], check=True)
    return (folder / "id.pub").read_text()


def end(provider: RetryingProvider) -> None:
    for machine in provider.list({}):
        provider.delete(machine)
    until(lambda: not provider.list({}), 30)
