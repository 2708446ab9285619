"""The user's own region: found as the clouds' tools find it, and first among what fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import catalog
from orchestrator.catalog import for_plan
from orchestrator.errors import Fault, ProviderError
from orchestrator.leases.offered import planned_of
from orchestrator.model import AcceleratorNeed, Bound, Need, Offer, clouds
from orchestrator.plan import rank
from orchestrator.profile import load
from orchestrator.providers.memory import MemoryProvider

AWS_CONFIG = "[default]\nregion = eu-west-1\n[profile work]\nregion = ap-south-1\n[profile bare]\n"
TEXT = """
version: 1
name: digits
cloud: gcp
resources: {cpus: 4, memory: 16 GiB}
max_duration: 1h
train: {command: python train.py}
"""


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"AWS_REGION": "us-west-2", "AWS_DEFAULT_REGION": "us-east-2"}, "us-west-2"),
        ({"AWS_DEFAULT_REGION": "us-east-2"}, "us-east-2"),
        ({}, "eu-west-1"),
        ({"AWS_PROFILE": "work"}, "ap-south-1"),
        ({"AWS_PROFILE": "bare"}, "us-east-1"),
        ({"AWS_CONFIG_FILE": "/nowhere"}, "us-east-1"),
    ],
)
def test_awss_own_order(environ: dict[str, str], found: str, tmp_path: Path) -> None:
    """docs.aws.amazon.com/cli/latest/userguide/cli-configure-envvars.html"""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(AWS_CONFIG)
    assert clouds.home_region("aws", {"HOME": str(tmp_path), **environ}) == found


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"CLOUDSDK_COMPUTE_REGION": "us-west1"}, "us-west1"),
        ({"CLOUDSDK_COMPUTE_ZONE": "us-east4-b"}, "us-east4"),
        ({}, "europe-west4"),
        ({"CLOUDSDK_ACTIVE_CONFIG_NAME": "zoned"}, "asia-east1"),
        ({"CLOUDSDK_ACTIVE_CONFIG_NAME": "absent"}, None),
    ],
)
def test_gclouds_own_order(environ: dict[str, str], found: str | None, tmp_path: Path) -> None:
    """cloud.google.com/sdk/docs/properties: the environment, then the active configuration."""
    folder = tmp_path / ".config/gcloud"
    (folder / "configurations").mkdir(parents=True)
    (folder / "active_config").write_text("mine")
    (folder / "configurations/config_mine").write_text(
        "[core]\nproject = p\n[compute]\nregion = europe-west4\n"
    )
    (folder / "configurations/config_zoned").write_text("[compute]\nzone = asia-east1-a\n")
    assert clouds.home_region("gcp", {"HOME": str(tmp_path), **environ}) == found


def test_who_has_none_begins_where_setup_prepares_and_elsewhere_anywhere(tmp_path: Path) -> None:
    """`orch setup aws` prepares one region; on Google a network is everywhere."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_bytes(b"\xff\xfe not a config")
    assert clouds.home_region("aws", {"HOME": str(tmp_path)}) == "us-east-1"
    assert clouds.home_region("gcp", {"HOME": str(tmp_path)}) is None
    assert clouds.home_region(clouds.LOCAL, {}) is None
    assert clouds.home_region(clouds.ANY, {}) is None


def test_its_offers_come_first_and_others_still_serve() -> None:
    cheap = Offer("gcp", "small", "us-central1", "us-central1-a", 4, 16 << 30, "x86_64", 0.10)
    near = replace(cheap, region="europe-west4", zone="europe-west4-a", price=0.12)
    assert rank(Need("gcp"), [near, cheap]) == [cheap, near]
    assert rank(Need("gcp", prefer="europe-west4"), [cheap, near]) == [near, cheap]


def test_a_preferred_region_is_not_cut_off_by_cheaper_ones() -> None:
    need = Need("gcp", cpus=Bound(2, at_least=True), prefer="europe-west6")
    assert catalog.offers(need)[0].region == "europe-west6"
    assert catalog.offers(replace(need, prefer=None))[0].region != "europe-west6"


def test_a_plan_prefers_it_unless_the_profile_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_COMPUTE_REGION", "europe-west6")
    (tmp_path / "p.yaml").write_text(TEXT)
    profile = load(tmp_path / "p.yaml")
    assert planned_of(profile, None, ()).offers[0].region == "europe-west6"
    named = load(tmp_path / "p.yaml", overrides=("region=us-east1",))
    assert {offer.region for offer in planned_of(named, None, ()).offers} == {"us-east1"}


def test_a_region_of_which_nothing_is_recorded_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    need = Need("aws", region="af-south-1")  # an account must opt in to it: nothing is recorded
    asked: list[str | None] = []

    def refresh(_: str, *, region: str | None = None) -> None:
        asked.append(region)
        raise ProviderError(Fault.AUTH, "no credentials")

    monkeypatch.setattr(catalog, "refresh", refresh)
    for_plan.offers_for(need, MemoryProvider())
    for_plan.offers_for(need, None)
    assert asked == ["af-south-1"], "a plan asks nobody"
    (lacking, *_) = for_plan.warnings_for(need)
    assert "orch catalog refresh aws --region af-south-1" in lacking
    gpu = replace(need, region="eu-west-1", accelerator=AcceleratorNeed(name="T4"))
    for recorded in (replace(need, region="eu-central-1"), gpu, replace(gpu, instance_type="g4dn.xlarge")):
        for_plan.offers_for(recorded, MemoryProvider())
        assert len(asked) == 1
        assert all("are recorded here" not in each for each in for_plan.warnings_for(recorded))
