"""`resources.instance_type`, disks and reservations in the plan, from the catalogs that ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.api.lease import plan
from orchestrator.errors import ProfileError
from orchestrator.report.lease import plan_text

LINES = """version: 1
name: digits
cloud: {cloud}
zone: {zone}
max_duration: 1h
train: {{command: python train.py}}
"""


def profile(folder: Path, cloud: str = "aws", zone: str = "us-east-1a", **resources: str) -> Path:
    path = folder / "p.yaml"
    (folder / "train.py").write_text("")
    (folder / "requirements.lock").write_text("")
    body = "".join(f"  {key}: {value}\n" for key, value in resources.items())
    path.write_text(LINES.format(cloud=cloud, zone=zone) + "resources:\n" + body)
    return path


def test_only_the_named_type_is_offered(tmp_path: Path) -> None:
    planned = plan(profile(tmp_path, instance_type="g4dn.xlarge"), folder=tmp_path)
    assert {offer.instance_type for offer in planned.offers} == {"g4dn.xlarge"}
    arm = plan(profile(tmp_path, instance_type="m7g.large"), folder=tmp_path)
    assert [offer.arch for offer in arm.offers] == ["arm64"], "the type says which processor"


def test_an_unknown_type_is_refused_at_its_place_with_the_nearest(tmp_path: Path) -> None:
    path = profile(tmp_path, instance_type="g4dn.xlrge")
    with pytest.raises(ProfileError, match=r"no g4dn\.xlrge; did you mean g4dn\.xlarge\?") as refused:
        plan(path, folder=tmp_path)
    assert refused.value.where == f"{path}:8:18"


def test_a_disk_that_a_type_does_not_take_is_not_offered(tmp_path: Path) -> None:
    path = profile(tmp_path, "gcp", "us-central1-a", memory="8 GiB+", disk="{type: hyperdisk-balanced}")
    families = {offer.instance_type.partition("-")[0] for offer in plan(path, folder=tmp_path).offers}
    assert families
    assert not families & {"e2", "n1", "n2"}


def test_the_plan_shows_what_the_disk_costs(tmp_path: Path) -> None:
    path = profile(
        tmp_path, memory="8 GiB+", disk="{size: 100 GiB, type: gp3, iops: 4000, throughput: 250 MiB/s}"
    )
    planned = plan(path, folder=tmp_path)
    assert planned.disk is not None
    assert planned.disk.usd_hour == pytest.approx((8.0 + 5.0 + 5.0) / 730, abs=1e-6)
    text = plan_text(planned.as_json())
    assert "disk: 100.0 GiB gp3, 4000 IOPS, 250 MiB/s, an additional $0.0247/h (price in us-east-1)" in text


def test_the_plan_shows_the_reservation(tmp_path: Path) -> None:
    path = profile(tmp_path, instance_type="p5.48xlarge")
    path.write_text(path.read_text() + "reservation: cr-0123456789abcdef0\n")
    text = plan_text(plan(path, folder=tmp_path).as_json())
    assert "reservation: cr-0123456789abcdef0; its cost is not part of these prices" in text
