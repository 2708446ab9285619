"""A cloud that no shared file names, through every verb: what its folder says is all that they ask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator import catalog, hosts, profile
from orchestrator.cli.app import app
from orchestrator.errors import HostError, ProfileError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Endpoint, Host, clouds
from orchestrator.session import machines
from tests.e2e.project import TINY_LOCK
from tests.third_cloud import traits
from tests.third_cloud.registered import registered
from tests.third_cloud.service import Service

PROFILE = """\
version: 1
name: tiny
cloud: third
region: north-1
resources: {cpus: 2, memory: 4 GiB, spot: true}
max_duration: 30m
train:
  command: python train.py
  outputs: [result.txt]
"""


@pytest.fixture
def third(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The cloud, and a project in the working folder whose profile names it."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("open('result.txt', 'w').write('trained')\n")
    (project / "requirements.lock").write_text(TINY_LOCK)
    (project / "orch.yaml").write_text(PROFILE)
    monkeypatch.chdir(project)
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(machines, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(hosts, "connect", _door(tmp_path / "third"))
    with registered(monkeypatch, tmp_path / "third") as service:
        yield service


def _door(folder: Path) -> Any:
    """The way onto a machine: a process of this computer, as long as the machine exists."""

    def connect(endpoint: Endpoint, *, machine_id: str, **_: Any) -> Host:
        if not (folder / machine_id).is_dir():
            raise HostError(f"{endpoint.address} does not answer.")
        return HereHost()

    return connect


def orch(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout)


def refusal(*overrides: str) -> str:
    with pytest.raises(ProfileError) as refused:
        profile.load(Path("orch.yaml"), overrides=overrides)
    return refused.value.message


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "cloud=thrid",
            "one of local, aws, gcp, third, any, found the text 'thrid'; did you mean third?",
        ),
        ("cloud=tertius", "did you mean third?"),
        ("region=us-east-1", "'us-east-1' is no region of third; its regions look like north-1"),
        ("zone=south-1-a", "zone 'south-1-a' is not in region 'north-1'"),
        ("max_duration=null", "max_duration is required on third"),
        ("cloud=any", "choose cloud: aws, gcp or third"),
        ("resources.disk=1 GiB", "the clouds' images need at least 10 GiB"),
    ],
)
@pytest.mark.usefixtures("third")
def test_its_profiles_are_checked(override: str, words: str) -> None:
    assert words in refusal(override)


@pytest.mark.usefixtures("third")
def test_a_zone_names_its_region_and_the_schema_names_the_cloud() -> None:
    loaded = profile.load(Path("orch.yaml"), overrides=("region=null", "zone=south-1-a"))
    assert (loaded.region, loaded.zone, loaded.resources.arch) == ("south-1", "south-1-a", "x86_64")
    assert profile.json_schema()["properties"]["cloud"]["enum"] == ["local", "aws", "gcp", "third", "any"]


@pytest.mark.usefixtures("third")
def test_without_a_catalog_or_a_doctor_it_says_so() -> None:
    assert "third" not in catalog.clouds()
    assert orch("catalog", "show", "third")[0] == 2
    assert orch("doctor", "third")[0] == 2


def test_with_a_catalog_any_finds_it_and_refresh_renews_it(
    third: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The catalog is two more lines of the traits' folder: where it is, and the module that asks."""
    monkeypatch.setattr(traits, "TRAITS", replace(traits.TRAITS, catalog="tests.third_cloud.catalog"))
    monkeypatch.setenv("ORCH_CACHE_HOME", str(tmp_path / "cache"))
    third.failing = True  # what is recorded needs no cloud
    code, planned = orch("plan", "orch.yaml", "--set", "cloud=any", "--set", "region=null")
    assert (code, planned["offers"][0]["cloud"], planned["offers"][0]["price"]) == (0, "third", 0.001)

    third.failing = False
    assert orch("catalog", "refresh", "third")[1]["catalogs"][0]["types"] == 2
    assert orch("plan", "orch.yaml")[1]["offers"][0]["price"] == 0.01


def test_a_plan_is_of_what_it_sells_and_makes_nothing(third: Service) -> None:
    for command in (("plan", "orch.yaml"), ("up", "orch.yaml", "--dry-run")):
        code, planned = orch(*command)
        assert code == 0
        offers = [(each["cloud"], each["zone"], each["price"]) for each in planned["offers"]]
        assert offers[0] == ("third", "north-1-a", 0.01)
    assert third.alive() == []


def test_a_job_runs_there_and_nothing_is_left(third: Service) -> None:
    code, made = orch("up", "orch.yaml", "--yes")
    assert (code, made["cloud"]) == (0, "third")
    (name,) = third.alive()
    assert orch("up", "orch.yaml", "--yes")[0] == 0  # the same machine
    assert third.alive() == [name]

    code, told = orch("status", "--live")
    assert (code, told["leases"][0]["machine"]) == (0, made["machine"])
    assert orch("train", "--run-id", "a")[0] == 0
    assert Path("runs/a/outputs/result.txt").read_text() == "trained"

    assert (orch("down")[0], third.alive()) == (0, [])
    assert orch("status")[1]["leases"] == []


def test_gc_ends_what_outlived_its_deadline_by_the_clock_of_the_cloud(third: Service) -> None:
    assert orch("up", "orch.yaml", "--yes")[0] == 0
    third.lenient = True
    assert orch("gc", "--cloud", "third")[1]["machines"][0]["outcome"] == "left"
    third.ahead = 4 * 3600.0
    code, report = orch("gc")
    assert (code, report["clouds"]) == (0, ["local", "third"])
    assert [each["outcome"] for each in report["machines"] if each["cloud"] == "third"] == ["ended"]
    assert third.alive() == []


def test_down_all_finds_what_no_ledger_knows(third: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    assert orch("up", "orch.yaml", "--yes")[0] == 0
    elsewhere = Path("elsewhere")
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert orch("down", "--all", "--cloud", "third", "--yes")[0] == 0
    assert third.alive() == []


def test_credentials_that_it_refuses_are_an_end(third: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THIRD_TOKEN", "of somebody else")
    code, said = orch("up", "orch.yaml", "--yes")
    assert (code, said["error"]["kind"], third.alive()) == (3, "ProviderError", [])


def test_what_is_asked_of_a_cloud_loads_no_client_library() -> None:
    """The traits of every cloud, in an interpreter of their own."""
    program = (
        "import sys; from orchestrator.model import clouds; clouds.every(); "
        "print(*sorted({'boto3', 'botocore', 'google', 'paramiko', 'pydantic'} & set(sys.modules)))"
    )
    root = Path(clouds.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=dict(os.environ), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, "")
