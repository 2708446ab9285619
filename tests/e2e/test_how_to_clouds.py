"""The commands of the how-tos for AWS and Google, typed in their order against emulated clouds.

The emulated machines have no GPU, so the profile asks for none, and there is no TensorFlow to compare.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clouds import gcp
from tests.clouds.ground_aws import grounded
from tests.conftest import ROOT
from tests.e2e.project import Project, tiny

pytestmark = [
    pytest.mark.machine,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="each instance needs a network of its own, so root"),
]

WITHOUT_GPU = {
    "aws": "region: us-east-1\nresources: {cpus: 2, memory: 1 GiB, disk: 10 GiB}\n",
    "gcp": "region: us-central1\nresources: {cpus: 2, memory: 8 GiB, disk: 12 GiB}\n",
}
NOT_ASKED = {"setup": ["--yes"], "up": ["--yes"]}
"""What a person types at a terminal and a program has to say."""
SETTLED = {"setup": ["--from", "203.0.113.7/32"]}
"""The public address, which nothing here can tell."""


def typed(page: str) -> list[list[str]]:
    """The commands of a how-to, in their order."""
    text = (ROOT / "docs/how-to" / page).read_text()
    return [shlex.split(line, comments=True)[1:] for line in re.findall(r"^ +(orch .*)$", text, re.M)]


@pytest.fixture(params=["aws", "gcp"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Project]]:
    if request.param == "gcp" and shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        pytest.skip("no sshd on this computer")
    with grounded() if request.param == "aws" else gcp.running() as cloud:
        made = tiny(tmp_path / "project", tmp_path / "state", "print('hello')\n")
        made.environ.update(cloud.env)
        head = f"version: 1\nname: tiny\ncloud: {request.param}\nmax_duration: 30m\n"
        train = "max_price: 1.00\nbudget: 50\ntrain:\n  command: python train.py\n"
        (made.folder / "orch.yaml").write_text(head + WITHOUT_GPU[request.param] + train)
        yield request.param, made
        made.orch("down", "--discard")


def test_its_commands_lead_from_an_empty_account_to_a_run(project: tuple[str, Project]) -> None:
    cloud, made = project
    page = {"aws": "gpu-on-aws.md", "gcp": "gpu-on-google.md"}[cloud]
    commands = typed(page)
    assert [words[0] for words in commands] == ["setup", "doctor", "plan", "up", "train", "down"]
    for words in commands:
        sure = [*words, *NOT_ASKED.get(words[0], []), *SETTLED.get(words[0], [])]
        made.orch(*[word for word in sure if word != "--local-parity"])
    (record,) = made.folder.glob("runs/*/run.json")
    assert '"completed"' in record.read_text()
    assert made.json("status")["leases"] == []
