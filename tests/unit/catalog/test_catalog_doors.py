"""Plans and the catalog through both doors, with no credentials and no way out."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator import api
from orchestrator.cli.app import app

PROFILES = Path(__file__).resolve().parents[3] / "profiles"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder, an empty cache, no credentials; and whoever connects fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCH_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ENDPOINT_URL", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)

    def refuse(*_: object) -> None:
        raise AssertionError("a plan connected to something")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return done.exit_code, done.stdout


@pytest.mark.parametrize(
    ("profile", "first", "region"),
    [("aws-t4", "g4dn.xlarge", "us-east-1"), ("gcp-l4", "g2-standard-4", "us-central1")],
)
def test_a_plan_needs_no_cloud(profile: str, first: str, region: str, tmp_path: Path) -> None:
    path = PROFILES / f"{profile}.yaml"
    made = api.plan(path)
    assert (made.offers[0].instance_type, made.offers[0].region) == (first, region)
    assert made.worst_case == made.cost(made.offers[0]) == pytest.approx(4 * made.offers[0].price)
    assert made.rejected and [warning for warning in made.warnings if "days old" in warning]
    code, text = run("plan", str(path))
    assert code == 0 and first in text and "orch catalog refresh" in text and "  not " in text
    assert list(tmp_path.iterdir()) == []


def test_the_saving_of_spot_is_shown_and_a_bound_is_said_to_be_one() -> None:
    _, google = run("plan", str(PROFILES / "gcp-l4.yaml"))
    assert "spot saves" in google and "44%" in google
    _, amazon = run("plan", str(PROFILES / "aws-t4.yaml"), "--set", "resources.spot=true")
    assert "≤ $0.53" in amazon and "the on-demand price, an upper bound" in amazon


def test_any_cloud_is_both_compared() -> None:
    overrides = ["cloud=any", "region=null", "max_price=2"]
    offers = api.plan(PROFILES / "aws-t4.yaml", overrides=overrides).offers
    assert {offer.cloud for offer in offers} == {"aws", "gcp"}
    assert [offer.price for offer in offers] == sorted(offer.price for offer in offers)


def test_cores_that_are_shared_are_said_to_be() -> None:
    overrides = ["resources.accelerator=null", "resources.cpus=2", "resources.memory=4 GiB"]
    made = api.plan(PROFILES / "aws-t4.yaml", overrides=overrides)
    assert made.offers[0].burstable
    lasting = next(offer for offer in made.offers if not offer.burstable)
    (warning,) = (warning for warning in made.warnings if "burstable machine" in warning)
    assert made.offers[0].instance_type in warning and lasting.instance_type in warning
    asked = ["resources.memory=8 GiB", "resources.cpus=4"]
    lasting_first = api.plan(PROFILES / "aws-t4.yaml", overrides=[*overrides[:1], *asked])
    assert not [warning for warning in lasting_first.warnings if "burstable machine" in warning]


def test_what_cannot_be_had_is_said_with_its_nearest() -> None:
    code, text = run(
        "plan", str(PROFILES / "aws-t4.yaml"), "--set", "resources.accelerator={memory: 900 GiB+}", "--json"
    )
    plan: dict[str, Any] = json.loads(text)
    assert (code, plan["offers"], plan["price"]) == (0, [], None)
    assert "None of" in plan["refusal"]


def test_the_catalog_is_shown() -> None:
    code, text = run("catalog", "show", "--json")
    aws, gcp = json.loads(text)["catalogs"]
    assert (code, aws["cloud"], aws["types"], gcp["types"]) == (0, "aws", 452, 258)
    assert aws["sources"] and aws["date"] == "2025-03-02" and len(aws["regions"]) == 17
    assert "T4" in gcp["accelerators"] and "days old" in gcp["warning"]
    code, text = run("catalog", "show", "gcp")
    assert code == 0 and "258 types" in text and "aws" not in text


def test_another_cloud_is_refused() -> None:
    assert run("catalog", "refresh", "azure")[0] == 2
