"""Several machines for one model on the emulated clouds, whose machines are real: up, train, down."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clouds import aws_reach, gcp, gcp_reach
from tests.clouds.ground_aws import grounded
from tests.e2e.project import tiny
from tests.e2e.test_gang import SCRIPT, TRAIN, uninterrupted

pytestmark = [
    pytest.mark.machine,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="machines with a network of their own"),
]

PROFILE = """\
version: 1
name: tiny
{place}
resources: {{nodes: 2, instance_type: {kind}, disk: 12 GiB}}
max_duration: 30m
{train}"""


@dataclass(frozen=True)
class Ground:
    """An emulated cloud. `instances`: those that are not gone; `groups`: what connects or places them."""

    environ: dict[str, str]
    place: str
    kind: str
    instances: Callable[[], list[str]]
    groups: Callable[[], list[str]]


@pytest.fixture(params=["aws", "gcp"])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    yield from _aws() if request.param == "aws" else _google()


def _aws() -> Iterator[Ground]:
    with grounded() as cloud:

        def instances() -> list[str]:
            over = ("terminated", "shutting-down")
            return [one["id"] for one in cloud.instances() if one["state"] not in over]

        place = "cloud: aws\nregion: us-east-1"
        environ = {**cloud.env, "ORCH_AWS_REGIONS": "us-east-1"}
        yield Ground(environ, place, "c6i.large", instances, lambda: list(aws_reach.groups(cloud)))


def _google() -> Iterator[Ground]:
    with gcp.running() as cloud:

        def instances() -> list[str]:
            return [one["name"] for one in cloud.state()["instances"]]

        place = "cloud: gcp\nzone: us-central1-a"
        yield Ground(
            dict(cloud.env), place, "n2-standard-2", instances, lambda: list(gcp_reach.groups(cloud))
        )


def test_two_machines_train_what_one_process_does_and_nothing_is_left(
    ground: Ground, tmp_path: Path, machines: Path
) -> None:
    project = tiny(tmp_path / "gang", machines, SCRIPT)
    project.environ.update(ground.environ)
    profile = project.folder / "orch.yaml"
    profile.write_text(PROFILE.format(place=ground.place, kind=ground.kind, train=TRAIN))
    try:
        said = project.orch("up", "orch.yaml", "--yes")
        assert "2 machines of tiny" in said.err and "Not placed close" not in said.err
        assert len(ground.instances()) == 2 and len(ground.groups()) == 2
        done = project.orch("train", "--run-id", "together", "--json")
        assert "[1] rank 1 of 2 begins at step 0" in done.err
        nodes = json.loads(done.out)["nodes"]
        assert [(node["rank"], node["exit"]) for node in nodes] == [(0, "completed"), (1, "completed")]
        result = project.folder / "runs/together/outputs/out/weight"
        assert result.read_text() == uninterrupted(tmp_path / "alone")
    finally:
        project.orch("down", "--discard")
    assert ground.instances() == [] and ground.groups() == []
