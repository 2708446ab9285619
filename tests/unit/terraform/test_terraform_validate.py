"""terraform itself reads terraform/: validate, and the tests beside it, by a provider that makes nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.api.terraform import terraform_outputs
from tests.unit.terraform_files import CLOUDS, TERRAFORM, schema
from tests.unit.terraform_provider import serving


def version() -> tuple[int, int]:
    """Of the terraform that is installed here; (0, 0) where there is none."""
    program = shutil.which("terraform")
    if program is None:
        return 0, 0
    environ = {**os.environ, "CHECKPOINT_DISABLE": "1"}
    shown = subprocess.run([program, "version", "-json"], env=environ, capture_output=True, text=True).stdout
    major, minor, *_ = json.loads(shown[shown.index("{") :])["terraform_version"].split(".")
    return int(major), int(minor)


pytestmark = pytest.mark.skipif(version() < (1, 7), reason="no terraform from 1.7 on is installed here")


class Ground:
    """A copy of terraform/CLOUD, and terraform in it."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        self._environ = environ

    def terraform(self, *argv: str) -> subprocess.CompletedProcess[str]:
        command = ["terraform", f"-chdir={self.folder}", *argv, "-no-color"]
        return subprocess.run(
            command, env=self._environ, capture_output=True, text=True, timeout=200, check=False
        )

    def replace(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))


def offline(home: Path) -> dict[str, str]:
    """An environment in which terraform asks nobody for anything."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    return {**kept, "HOME": str(home), "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}


@pytest.fixture(params=CLOUDS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    folder = tmp_path / request.param
    shutil.copytree(TERRAFORM / request.param, folder)
    with serving(schema(request.param), tmp_path) as provider:
        found = Ground(folder, {**offline(tmp_path), **provider})
        begun = found.terraform("init", "-backend=false")
        assert begun.returncode == 0, begun.stdout + begun.stderr
        yield found


def test_it_is_valid(made: Ground) -> None:
    found = made.terraform("validate")
    assert found.returncode == 0, found.stdout + found.stderr


def test_its_own_tests_pass(made: Ground) -> None:
    found = made.terraform("test")
    assert found.returncode == 0, found.stdout + found.stderr
    passed = re.search(r"Success! (\d+) passed, 0 failed", found.stdout)
    assert passed
    assert int(passed.group(1)) >= 4


FAULTS = [
    ("aws", "network.tf", "cidr_block           = var.network", "cidr = var.network", "Unsupported argument"),
    (
        "aws",
        "network.tf",
        "cidrsubnet(var.network, 4,",
        "cidrsubnets(var.network, 4,",
        "Incorrect attribute value",
    ),
    ("aws", "outputs.tf", "aws_iam_group.orch.name", "aws_iam_group.orch.title", "Unsupported attribute"),
    ("gcp", "network.tf", "each.value)", "each.valued)", "each.valued"),
    (
        "gcp",
        "budget.tf",
        "  amount {\n    specified_amount {",
        "  sum {\n    specified_amount {",
        "Unsupported block",
    ),
    ("gcp", "identity.tf", "jsondecode(file(", "jsondecoded(file(", "no function named"),
]


@pytest.mark.parametrize("made", CLOUDS, indirect=True)
def test_validate_notices_faults(made: Ground) -> None:
    """Each planted alone, and taken back."""
    for cloud, file, old, new, said in FAULTS:
        if cloud != made.folder.name:
            continue
        made.replace(file, old, new)
        found = made.terraform("validate")
        assert found.returncode == 1, f"{new} was taken for valid"
        assert said in " ".join((found.stdout + found.stderr).split()), found.stderr
        made.replace(file, new, old)


def test_the_tests_notice_a_door_that_is_open(made: Ground) -> None:
    made.replace("variables.tf", ">= 8, false", ">= 0, false")
    found = made.terraform("test")
    assert found.returncode == 1
    assert 'run "the_world_is_refused"... fail' in found.stdout


# ---------------------------------------------------------------- orch init reads what terraform wrote

OUTPUT = """\
output "orch" {
  value = {
    version     = 1
    cloud       = "aws"
    regions     = ["eu-west-1"]
    environment = { ORCH_AWS_REGIONS = "eu-west-1" }
  }
}
"""


@pytest.mark.parametrize(
    "backend", ["", 'terraform {\n  backend "local" {\n    path = "elsewhere/state"\n  }\n}\n']
)
def test_what_was_applied_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """From the state beside it, or by asking terraform where the state is said to be elsewhere."""
    for name, value in offline(tmp_path).items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "ground"
    folder.mkdir()
    (folder / "main.tf").write_text(OUTPUT + backend)
    applied = Ground(folder, offline(tmp_path))
    for argv in (("init",), ("apply", "-auto-approve")):
        done = applied.terraform(*argv)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "terraform.tfstate").exists() == (not backend)
    found = terraform_outputs(folder)
    assert (found.cloud, found.regions) == ("aws", ("eu-west-1",))


def test_another_workspace_has_another_state(tmp_path: Path) -> None:
    folder = tmp_path / "ground"
    folder.mkdir()
    (folder / "main.tf").write_text(OUTPUT.replace('"eu-west-1"', '"us-${terraform.workspace}-1"'))
    applied = Ground(folder, offline(tmp_path))
    for argv in (("init",), ("workspace", "new", "east"), ("apply", "-auto-approve")):
        done = applied.terraform(*argv)
        assert done.returncode == 0, done.stdout + done.stderr
    assert terraform_outputs(folder).regions == ("us-east-1",)
