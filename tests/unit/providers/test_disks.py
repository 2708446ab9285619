"""The kinds of disk of each cloud: what may be ordered together, and what it costs."""

from __future__ import annotations

import pytest

from orchestrator.model import Volume
from orchestrator.providers.aws.disks import MARKET as AWS
from orchestrator.providers.gcp.disks import MARKET as GCP

GIB = 1 << 30


@pytest.mark.parametrize(
    ("kind", "gib", "wanted", "fields"),
    [
        ("gp3", 100, Volume(), []),
        ("gp3", 100, Volume(iops=16000, throughput=1000), []),
        ("gp3", 100, Volume(throughput=500), []),
        ("gp3", 100, Volume(throughput=1000), ["throughput"]),  # 0.25 MiB/s for each of 3,000 IOPS
        ("gp3", 70000, Volume(), ["size"]),
        ("gp3", 100, Volume(iops=2000), ["iops"]),
        ("gp3", 20, Volume(iops=16000), ["iops"]),
        ("gp2", 100, Volume(iops=3000), ["iops"]),
        ("io2", 100, Volume(), ["iops"]),
        ("io2", 100, Volume(iops=50000), []),
        ("io2", 100, Volume(iops=50000, throughput=500), ["throughput"]),
        ("io1", 100, Volume(iops=6000), ["iops"]),
    ],
)
def test_what_ec2_would_refuse(kind: str, gib: int, wanted: Volume, fields: list[str]) -> None:
    found = AWS.named(kind)
    assert found is not None
    assert [field for field, _ in found.problems(gib * GIB, wanted)] == fields


@pytest.mark.parametrize(
    ("instance_type", "default", "refused"),
    [
        ("n1-standard-4", "pd-balanced", "hyperdisk-balanced"),
        ("g2-standard-4", "pd-balanced", "pd-standard"),
        ("e2-standard-2", "pd-balanced", "pd-extreme"),
        ("a3-highgpu-8g", "pd-balanced", "pd-standard"),
        ("a3-ultragpu-8g", "hyperdisk-balanced", "pd-ssd"),
        ("n4-standard-2", "hyperdisk-balanced", "pd-balanced"),
    ],
)
def test_which_disk_a_machine_of_google_takes(instance_type: str, default: str, refused: str) -> None:
    chosen = GCP.chosen(Volume(), instance_type)
    assert chosen is not None
    assert chosen.name == default
    assert GCP.chosen(Volume(refused), instance_type) is None


def test_the_price_of_a_disk_is_that_of_its_size_and_of_what_is_ordered() -> None:
    gp3 = AWS.named("gp3")
    assert gp3 is not None
    assert gp3.usd_hour(100 * GIB, Volume()) == pytest.approx(8.0 / 730)
    ordered = gp3.usd_hour(100 * GIB, Volume(iops=4000, throughput=250))
    assert ordered == pytest.approx((8.0 + 1000 * 0.005 + 125 * 0.04) / 730)
    assert gp3.usd_hour(100 * GIB, Volume(iops=3000, throughput=125)) == gp3.usd_hour(100 * GIB, Volume())
