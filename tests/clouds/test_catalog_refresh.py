"""orch catalog refresh against the test cloud of AWS: by boto3 over HTTP, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.catalog.for_plan import offers_for
from orchestrator.model import Bound, Need
from orchestrator.providers import open_provider
from tests import forked_orch

ROOT = Path(__file__).resolve().parents[2]
T4 = ROOT / "profiles" / "aws-t4.yaml"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    command = [sys.executable, "-m", "tests.clouds.aws", "--port", "0"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as cloud:
        assert cloud.stdin and cloud.stdout
        found = json.loads(cloud.stdout.readline())
        yield {**os.environ, **found, "ORCH_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}
        cloud.stdin.close()
        cloud.wait(60)


def orch(environment: dict[str, str], folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = forked_orch.orch(*arguments, "--json", env=environment, cwd=folder)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_refused_credentials_leave_the_catalog_as_it_was(environment: dict[str, str], tmp_path: Path) -> None:
    wrong = {**environment, "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7WRONG00"}
    code, answer = orch(wrong, tmp_path, "catalog", "refresh", "aws")
    assert (code, answer["error"]["exists"]) == (3, "The catalog is as it was.")
    assert list(Path(environment["ORCH_CACHE_HOME"]).iterdir()) == []


def test_a_plan_is_made_of_what_was_asked_for_now(environment: dict[str, str], tmp_path: Path) -> None:
    _, before = orch(environment, tmp_path, "plan", str(T4), "--set", "resources.spot=true")
    assert {(offer["zone"], offer["price_is_bound"]) for offer in before["offers"]} == {("", True)}
    assert before["warnings"]
    code, answer = orch(environment, tmp_path, "catalog", "refresh", "aws", "--region", "us-east-1")
    (renewed,) = answer["catalogs"]
    assert code == 0 and renewed["regions"] == ["us-east-1"] and renewed["types"] > 1000
    assert len(renewed["unpriced"]) < renewed["types"] / 10
    _, after = orch(environment, tmp_path, "plan", str(T4), "--set", "resources.spot=true")
    assert after["warnings"] == [] and len({offer["zone"] for offer in after["offers"]}) > 2
    for offer in after["offers"]:
        assert offer["zone"].startswith("us-east-1") and not offer["price_is_bound"]
        assert 0 < offer["price"] < offer["on_demand"]
    _, on_demand = orch(environment, tmp_path, "plan", str(T4))
    assert (on_demand["offers"][0]["instance_type"], on_demand["price"]) == ("g4dn.xlarge", 0.526)


def test_a_region_of_which_nothing_is_recorded_is_asked_about_once_by_up(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("ORCH_AWS_REGIONS", "af-south-1")
    monkeypatch.setenv("ORCH_CACHE_HOME", str(tmp_path))
    need = Need("aws", cpus=Bound(4), region="af-south-1")
    assert not offers_for(need, None) or offers_for(need, None)[0].region != "af-south-1"
    found = [offer for offer in offers_for(need, open_provider("aws")) if offer.region == "af-south-1"]
    assert found
    (kept,) = (tmp_path / "catalog" / "aws").iterdir()
    offers_for(need, open_provider("aws"))
    assert list((tmp_path / "catalog" / "aws").iterdir()) == [kept]
