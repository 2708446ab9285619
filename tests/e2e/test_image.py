"""Images that hold a profile's packages: made, booted by `up`, verified there, listed and deleted."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clouds import gcp
from tests.clouds.aws import Cloud
from tests.clouds.ground_aws import grounded
from tests.e2e.project import HELLO, Project, tiny

pytestmark = [pytest.mark.machine, pytest.mark.slow]

AWS_PROFILE = """\
version: 1
name: tiny
cloud: aws
region: us-east-1
resources: {cpus: 2, memory: 1 GiB, disk: 10 GiB}
max_duration: 30m
train:
  command: python train.py
"""

GOOGLE_PROFILE = """\
version: 1
name: tiny
cloud: gcp
zone: us-central1-a
resources: {cpus: 2, memory: 8 GiB, disk: 12 GiB}
max_duration: 30m
train:
  command: python train.py
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    """A tiny project with a state folder of its own: images are this test's only."""
    made = tiny(tmp_path / "project", tmp_path / "state", HELLO)
    yield made
    made.orch("down", "--discard")
    for image in images(made):
        made.orch("image", "delete", image["name"])


def baked(project: Project, *argv: str) -> dict[str, Any]:
    said = project.orch("image", "bake", "--json", "orch.yaml", "--yes", *argv)
    image: dict[str, Any] = json.loads(said.out)["image"]
    return image


def images(project: Project) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(project.orch("image", "list", "--json").out)["images"]
    return found


def machines(project: Project) -> list[str]:
    folder = project.state / "machines"
    return (
        [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.exists() else []
    )


def layer(project: Project) -> Path:
    (path,) = (project.state / "images").glob("orch-*/layer")
    return path


def test_up_finds_the_stack_in_the_image(here: Project) -> None:
    said = here.orch("image", "bake", "orch.yaml", "--yes")
    assert "orch-tiny-" in said.out and "Next: orch up orch.yaml" in said.out
    assert machines(here) == []
    assert sorted(path.name for path in layer(here).iterdir()) == ["python", "stacks", "uv", "uv-cache"]
    assert not list(layer(here).rglob("*.seen.json"))
    (listed,) = images(here)
    assert listed["state"] == "available" and listed["size"] > 1 << 20 and listed["usd_month"] == 0
    assert here.json("plan", "orch.yaml")["image"] == listed["name"]
    up = here.orch("up", "orch.yaml", "--yes")
    assert "Stack: already there" in up.err
    assert "uv:" not in up.err and "wheel" not in up.err  # neither was sent
    assert "runtime:" in up.err  # what verifies the image comes from here
    here.orch("train")
    refused = here.orch("image", "delete", listed["name"], code=15)
    assert "in use" in refused.err
    here.orch("down")
    again = here.orch("image", "bake", "orch.yaml", "--yes")
    assert "exists already" in again.out
    here.orch("image", "delete", listed["name"])
    assert images(here) == []
    assert here.json("plan", "orch.yaml")["image"] is None


def test_an_altered_image_is_not_trusted(here: Project) -> None:
    here.orch("image", "bake", "orch.yaml", "--yes")
    (six,) = layer(here).glob("stacks/*/lib/python*/site-packages/six.py")
    text = six.read_text()
    six.write_text(text.replace('__version__ = "1.17.0"', '__version__ = "6.6.6"'))
    up = here.orch("up", "orch.yaml", "--yes")
    assert "has changed since it was installed" in up.err and "Stack: installed" in up.err
    said = here.orch("ssh", "sh", "-c", "cat /opt/orch/stacks/*/lib/python*/site-packages/six.py")
    assert said.out.strip() == text.strip()


def test_another_lock_does_not_get_the_image(here: Project) -> None:
    here.orch("image", "bake", "orch.yaml", "--yes")
    lock = here.folder / "requirements.lock"
    lock.write_text("# no package at all\n")
    assert here.json("plan", "orch.yaml")["image"] is None


def test_killed_while_the_machine_is_prepared_and_repeated(here: Project) -> None:
    process = here.start("image", "bake", "orch.yaml", "--yes")
    assert process.stderr is not None
    for line in process.stderr:
        if b"Removing keys" in line:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert len(machines(here)) == 1
    said = here.orch("image", "bake", "orch.yaml", "--yes")
    assert "Continuing after an interrupted call" in said.err
    assert machines(here) == []
    assert len(images(here)) == 1


def test_a_failure_leaves_neither_machine_nor_image(here: Project) -> None:
    here.state.mkdir(exist_ok=True)
    blocked = here.state / "images"
    blocked.write_text("not a folder")
    said = here.orch("image", "bake", "orch.yaml", "--yes", code=5)
    assert "The machine was deleted" in said.err and "Next: orch image bake" in said.err
    assert machines(here) == []
    blocked.unlink()


def test_where_no_image_can_be_made_that_is_said_by_name(here: Project) -> None:
    process = here.orch("image", "bake", "orch.yaml", "--yes", code=2, ORCH_LOCAL_TIER="process")
    assert "process" in process.err and "orch doctor" in process.err
    assert machines(here) == []
    here.orch("image", "bake", "orch.yaml", "--name", "Bad_Name", code=2)
    here.orch("image", "delete", "nobody-knows", code=2)


# ---------------------------------------------------------------- AWS, emulated


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with grounded() as made:
        yield made


@pytest.fixture
def rented(cloud: Cloud, tmp_path: Path) -> Iterator[Project]:
    made = tiny(tmp_path / "project", tmp_path / "state", HELLO)
    (made.folder / "orch.yaml").write_text(AWS_PROFILE)
    made.environ.update(cloud.env)
    yield made
    made.orch("down", "--discard")


def test_on_aws_an_image_holds_the_stack_and_no_key(cloud: Cloud, rented: Project) -> None:
    made = baked(rented)
    assert made["state"] == "available" and made["region"] == "us-east-1" and made["usd_month"] > 0
    ec2 = cloud.client("ec2", "us-east-1")
    (image,) = ec2.describe_images(Owners=["self"])["Images"]
    assert image["Name"] == made["name"]
    assert rented.json("plan", "orch.yaml")["image"] == made["name"]  # by the ledger: no cloud was asked
    up = rented.orch("up", "orch.yaml", "--yes")
    assert "Stack: already there" in up.err and "uv:" not in up.err
    held = rented.orch(
        "ssh", "sh", "-c", "sudo -n true 2>/dev/null; cat ~/.ssh/authorized_keys; ls /home/ubuntu/orch"
    )
    assert held.out.count("ssh-ed25519") == 1
    rented.orch("train")
    rented.orch("down")
    rented.orch("image", "delete", made["name"])
    assert ec2.describe_images(Owners=["self"])["Images"] == []
    assert ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"] == []
    assert rented.json("plan", "orch.yaml")["image"] is None


def test_on_aws_snapshots_of_an_interrupted_deletion_are_listed_and_deleted(
    cloud: Cloud, rented: Project
) -> None:
    made = baked(rented, "--name", "orch-mine")
    ec2 = cloud.client("ec2", "us-east-1")
    ec2.deregister_image(ImageId=made["reference"])
    (left,) = images(rented)
    assert (left["name"], left["state"]) == ("orch-mine", "failed")
    assert "already there" not in rented.orch("up", "orch.yaml", "--yes").err
    rented.orch("down")
    rented.orch("image", "delete", "orch-mine")
    assert ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"] == []


# ---------------------------------------------------------------- Google Cloud, emulated


@pytest.fixture(scope="module")
def google() -> Iterator[gcp.Cloud]:
    if os.geteuid() != 0:
        pytest.skip("each instance needs a network of its own, so root")
    with gcp.running() as made:
        yield made


@pytest.fixture
def on_google(google: gcp.Cloud, tmp_path: Path) -> Iterator[Project]:
    made = tiny(tmp_path / "project", tmp_path / "state", HELLO)
    (made.folder / "orch.yaml").write_text(GOOGLE_PROFILE)
    made.environ.update(google.env)
    yield made
    made.orch("down", "--discard")


CARRIED_BY_NO_IMAGE = (
    "etc/ssh/ssh_host_*",
    "home/*/.ssh",
    "root/.ssh",
    "var/lib/orch*",
    "var/lib/google/*",
    "var/log/*",
    "etc/sudoers.d/90-orch",
    "etc/google_instance_id",
    "etc/boto.cfg",
    "home/orch/orch/runtime*",
    "home/orch/orch/code*",
)


def test_on_google_an_image_holds_the_stack_and_no_identity(google: gcp.Cloud, on_google: Project) -> None:
    made = baked(on_google)
    assert (made["state"], made["region"]) == ("available", "") and made["usd_month"] > 0
    (image,) = google.state()["images"]
    assert image["name"] == made["name"] and google.state()["instances"] == []
    files = Path(image["files"])
    found = [str(path) for pattern in CARRIED_BY_NO_IMAGE for path in files.glob(pattern) if holds(path)]
    assert found == []
    assert (files / "home/orch/orch/stacks").is_dir() and (files / "etc/machine-id").read_text() == ""
    assert on_google.json("plan", "orch.yaml")["image"] == made["name"]  # by the ledger: no cloud was asked
    up = on_google.orch("up", "orch.yaml", "--yes")
    assert "Stack: already there" in up.err and "uv:" not in up.err
    held = on_google.orch("ssh", "sh", "-c", "cat ~/.ssh/authorized_keys; ls -d ~/orch/stacks")
    assert held.out.count("ssh-ed25519") == 1
    on_google.orch("train")
    on_google.orch("down")
    on_google.orch("image", "delete", made["name"])
    assert google.state()["images"] == []
    assert on_google.json("plan", "orch.yaml")["image"] is None


def holds(path: Path) -> bool:
    """Whether there is anything in it: a log that was emptied is no log."""
    return path.is_dir() or path.stat().st_size > 0


def test_on_google_what_could_not_be_stored_leaves_nothing(google: gcp.Cloud, on_google: Project) -> None:
    google.faults({"method": "compute.images.insert", "kind": "quota", "metric": "IMAGES"})
    said = on_google.orch("image", "bake", "orch.yaml", "--yes", code=4)
    assert "IMAGES" in said.err and "The machine was deleted" in said.err and "Next:" in said.err
    assert google.state()["instances"] == [] and google.state()["images"] == []
