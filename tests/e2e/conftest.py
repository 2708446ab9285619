"""Machines that the end-to-end tests share: starting one is quick, installing TensorFlow on it is not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.providers.local.store import Folder
from orchestrator.providers.local.survey import survey
from tests.conftest import DIGITS, ROOT
from tests.e2e.machine_bench import Bench, groups
from tests.e2e.project import Project, tiny


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the local provider keeps the machines of this test session."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def digits(machines: Path, digits_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A copy of the digits example with its profile and its data, on a machine that is up."""
    folder = tmp_path_factory.mktemp("work")
    ignored = shutil.ignore_patterns("data", "out", ".venv", "__pycache__")
    shutil.copytree(DIGITS, folder / "examples" / "digits", ignore=ignored)
    shutil.copytree(digits_data, folder / "examples" / "digits" / "data")
    shutil.copytree(ROOT / "profiles", folder / "profiles")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    project = Project(folder, machines)
    project.orch("up", "profiles/digits.yaml")
    yield project
    project.orch("down", "--discard")


@pytest.fixture(scope="session")
def other_onednn(tf_python: Path) -> str:
    """The value of TF_ENABLE_ONEDNN_OPTS that changes the kernels: its default depends on the processor."""
    asked = "from tensorflow.python.util._pywrap_util_port import IsMklEnabled; print(IsMklEnabled())"
    said = subprocess.run([tf_python, "-c", asked], capture_output=True, text=True, check=True).stdout
    return "0" if said.split()[-1] == "True" else "1"


@pytest.fixture
def project(tmp_path: Path, machines: Path) -> Iterator[Project]:
    """A tiny project, not up yet; whatever a test leaves running is ended."""
    made = tiny(tmp_path / "project", machines, "print('hello')\n")
    yield made
    made.orch("down", "--discard")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    if survey().tier != "netns":
        pytest.skip(f"needs an isolated machine; this computer allows {survey().tier}: {survey().missing}")
    made = Bench(tmp_path)
    try:
        yield made
    finally:
        marks = {Folder(path).mark for path in (tmp_path / "state/machines").glob("m-*")}
        for machine in made.provider.list({}):
            made.provider.delete(machine)
        made.await_nothing()
        assert groups().isdisjoint(marks)
