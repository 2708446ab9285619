"""Verbs killed around the calls of an emulated cloud: nothing is made twice, and nothing is left.

Before a call can take effect, and when its answer has come and nobody has noted it; more by
`scripts/crashtest`.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.emulated import CALLS, KINDS, Emulated, emulated
from tests.crash.image_sweeps import IMAGE_SWEEPS
from tests.crash.kill import Kill
from tests.crash.rig import Rig, rig
from tests.crash.sweep import lives, sweep
from tests.nightly import sampled

pytestmark = [
    pytest.mark.machine,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="each instance needs a network of its own, so root"),
]


@pytest.fixture(scope="module", params=KINDS)
def cloud(request: pytest.FixtureRequest) -> Iterator[Emulated]:
    pytest.importorskip("boto3" if request.param == "aws" else "google.cloud.compute_v1")
    with emulated(request.param) as made:
        yield made


@pytest.fixture
def project(tmp_path: Path, cloud: Emulated) -> Iterator[Rig]:
    with rig(tmp_path, cloud.kind, cloud) as made:
        yield made


def require_sound(kills: list[Kill]) -> None:
    assert [kill for kill in kills if not kill.killed] == [], "the process was killed in earnest"
    assert [kill for kill in kills if not kill.sound] == []


def test_up_and_down(project: Rig) -> None:
    kills = list(lives(project, CALLS[project.kind, "up"], CALLS[project.kind, "down"]))
    assert [kill.verb for kill in kills] == ["up", "down", "up", "down", "up"]
    require_sound(kills)


ALWAYS = {("aws", "up, only down"), ("gcp", "run")}


@pytest.mark.parametrize(
    ("cloud", "verb"),
    sampled(
        itertools.product(KINDS, ("up, only down", "run")),
        {("aws", "up, only down"), ("gcp", "run")}.__contains__,
    ),
    indirect=["cloud"],
)
def test_other_verbs(project: Rig, verb: str) -> None:
    require_sound(list(sweep(project, verb, CALLS[project.kind, verb])))


@pytest.mark.parametrize("cloud", sampled(KINDS, {"gcp"}.__contains__), indirect=True)
def test_an_image_that_was_asked_for_is_found_again(project: Rig) -> None:
    """The bake is killed when the cloud has begun to store it, and repeated."""
    begun = [
        point for point in CALLS[project.kind, "image bake"] if re.match("(CreateImage|POST global)", point)
    ]
    require_sound(list(sweep(project, "image bake", begun[-1:])))


@pytest.mark.nightly
@pytest.mark.parametrize("verb", IMAGE_SWEEPS)
def test_images(project: Rig, verb: str) -> None:
    require_sound(list(sweep(project, verb, CALLS[project.kind, verb])))
