"""Where a bucket lies, what it costs to fetch it from elsewhere, and that a machine is sought beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.leases import egress
from orchestrator.leases.offered import foreseen_plan
from orchestrator.model.stores import Stored
from orchestrator.profile import load
from orchestrator.session import buckets
from orchestrator.session.project import Project
from orchestrator.storage import open_store
from tests.clouds.signing import new_bucket
from tests.e2e.project import TINY_LOCK

PROFILE = """version: 1
name: far
cloud: aws
{region}resources: {{cpus: 2+, memory: 4 GiB+}}
max_duration: 1h
data:
  - source: {bucket}/images
train:
  command: python train.py
"""


@pytest.mark.parametrize(
    ("url", "where", "cloud", "region", "usd"),
    [
        ("s3://b", "us-east-1", "aws", "us-east-1", 0.0),
        ("s3://b", "us-east-1", "aws", "eu-west-1", 0.02),
        ("s3://b", "sa-east-1", "aws", "us-east-1", 0.138),
        ("s3://b", "us-east-1", "gcp", "us-east1", 0.09),
        ("gs://b", "us-central1", "gcp", "us-central1", 0.0),
        ("gs://b", "US", "gcp", "us-central1", 0.02),
        ("gs://b", "EU", "gcp", "us-central1", 0.05),
        ("gs://b", "europe-west4", "gcp", "australia-southeast1", 0.14),
        ("gs://b", "US", "aws", "us-east-1", 0.12),
        ("gs://b", "US", "local", "", 0.12),
        ("file:///data", "", "aws", "us-east-1", 0.0),
    ],
)
def test_the_price_is_that_of_the_way(url: str, where: str, cloud: str, region: str, usd: float) -> None:
    assert egress.usd_per_gib(url, where, cloud, region) == usd


@pytest.fixture
def far(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A bucket of S3 in a region that is not the user's own."""
    request.param = "s3"
    new_bucket(request, monkeypatch, tmp_path)
    name = f"far-{tmp_path.name[-8:].strip('_')}-{id(tmp_path) % 99999}"
    client = request.getfixturevalue("shared_aws").client("s3")
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    open_store(f"s3://{name}/images").put("a", b"1")
    egress._place.cache_clear()
    return f"s3://{name}"


def project(folder: Path, bucket: str, region: str = "") -> Path:
    folder.mkdir()
    (folder / "train.py").write_text("")
    (folder / "requirements.lock").write_text(TINY_LOCK)
    (folder / "orch.yaml").write_text(PROFILE.format(bucket=bucket, region=region))
    return folder / "orch.yaml"


def test_old_prices_of_the_region_of_the_data_are_named(far: str, tmp_path: Path) -> None:
    assert open_store(far).region() == "eu-west-1"
    wanted = load(project(tmp_path / "p", far), files=True)
    planned = foreseen_plan(Project.at(tmp_path / "p"), wanted, ())
    assert any("Prices of aws are of" in each and "--region eu-west-1" in each for each in planned.warnings)


def test_a_machine_elsewhere_is_told_with_what_that_adds(
    far: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = buckets.listed
    many = replace(listed(f"{far}/images"), objects=(Stored("a", 100 << 30, "1", ""),))
    monkeypatch.setattr(buckets, "listed", lambda _, **__: many)
    profile = project(tmp_path / "p", far, "region: us-east-1\n")
    planned = foreseen_plan(Project.at(tmp_path / "p"), load(profile, files=True), ())
    (told,) = [each for each in planned.warnings if "data transfer" in each]
    assert "is in eu-west-1" in told and "us-east-1 of aws" in told and "about $2.00" in told


def test_a_bucket_that_is_not_there_is_among_what_would_stop_up(far: str, tmp_path: Path) -> None:
    wanted = load(project(tmp_path / "p", f"{far}-gone"), files=True)
    planned = foreseen_plan(Project.at(tmp_path / "p"), wanted, ())
    assert any("`up` will stop" in each and f"{far[5:]}-gone" in each for each in planned.warnings)


def test_a_machine_is_sought_in_the_region_of_the_data(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from google.cloud import storage

    request.param = "gs"
    several = new_bucket(request, monkeypatch, tmp_path)
    assert open_store(several).region() == "US"
    name = f"{several[5:]}-near"
    storage.Client().create_bucket(name, location="EUROPE-WEST4")
    open_store(f"gs://{name}/images").put("a", b"1")
    monkeypatch.setenv("CLOUDSDK_COMPUTE_REGION", "us-east1")
    profile = project(tmp_path / "p", f"gs://{name}")
    wanted = load(profile, overrides=("cloud=gcp",), files=True)
    planned = foreseen_plan(Project.at(tmp_path / "p"), wanted, ())
    assert planned.offers[0].region == "europe-west4"
    assert not any("data transfer" in each for each in planned.warnings)
