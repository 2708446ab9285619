"""A quota that nobody may read: only the create call tells it, and `up` goes on to the next region."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api import setup as setup_
from orchestrator.errors import EXIT_CAPACITY, Fault, ProviderError
from orchestrator.leases import machine as making
from orchestrator.leases.consent import Consent
from orchestrator.leases.offered import narrowed, planned_of
from orchestrator.leases.ready import require_ready
from orchestrator.ledger import Lease, Ledger
from orchestrator.model import Endpoint, Progress, Provider, Silent
from orchestrator.plan import Plan
from orchestrator.profile import Profile, load
from orchestrator.providers import open_provider
from orchestrator.session.project import Project
from orchestrator.session.reach import Reached
from tests.clouds.fresh import NEW_NETWORK, fresh
from tests.unit.memory_cloud import opened_lease

HERE = "203.0.113.7/32"
REGIONS = {"aws": ("us-east-1", "us-west-2"), "gcp": ("us-central1", "us-east1")}
PROFILE = """\
version: 1
name: digits
cloud: {cloud}
region: [{regions}]
resources: {{cpus: 4+, memory: 16 GiB+, accelerator: {gpu}}}
max_duration: 1h
max_price: 2
train: {{command: python train.py}}
"""


@pytest.fixture(scope="module", params=["aws", "gcp"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    pytest.importorskip({"aws": "boto3", "gcp": "google.cloud.compute_v1"}[request.param])
    with fresh(request.param, machines=False) as cloud:
        if request.param == "gcp":
            cloud.settings(disabled=[], firewalls=[NEW_NETWORK])
        yield request.param, cloud


@pytest.fixture
def account(served: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[str, Any]:
    name, cloud = served
    for key, value in cloud.env.items():
        monkeypatch.setenv(key, value)
    for region in REGIONS[name]:
        setup_.setup(name, source=HERE, region=region)
    monkeypatch.setattr(making, "wait_until_reachable", _reached)
    return name, cloud


def _reached(provider: Provider, lease: Lease, tell: Progress) -> Reached:
    del tell
    machine = next(iter(provider.list({"orch-lease": lease.id})))
    return Reached(provider, machine, Endpoint("here", 22, "me", ()), 600.0, 0.0)


def used_up(name: str, cloud: Any, *regions: str) -> None:
    """The quota of GPUs there is 0, and nobody may read it."""
    if name == "aws":
        codes = ("L-DB2E81BA", "L-3819A6DF")
        cloud.set(
            quotas={f"{region}/{code}": 0 for region in regions for code in codes},
            policy={"Statement": [{"Effect": "Allow", "NotAction": ["servicequotas:*"]}]},
        )
    else:
        cloud.settings(
            quotas={f"{region}/NVIDIA_L4_GPUS": 0 for region in regions},
            denied=["compute.regions.get", "compute.projects.get"],
        )


def wanted(folder: Path, name: str) -> Profile:
    gpu = {"aws": "T4", "gcp": "L4"}[name]
    (folder / "p.yaml").write_text(PROFILE.format(cloud=name, regions=", ".join(REGIONS[name]), gpu=gpu))
    return load(folder / "p.yaml")


def ready(profile: Profile, provider: Provider) -> Plan:
    planned = planned_of(profile, provider, ())
    known = require_ready(profile, planned.offers)
    assert known.offers == planned.offers, "nobody was told of the quota"
    return narrowed(profile, planned, known.offers)


def made(folder: Path, name: str, provider: Provider, approve: Any = None) -> tuple[Ledger, Reached]:
    profile, place = wanted(folder, name), Project.at(folder)
    ledger = opened_lease(place, "digits", name)
    place.identity("digits").unlink()
    planned, consent = ready(profile, provider), Consent(approve, profile)
    return ledger, making.machine_of(ledger, provider, planned, profile, place, Silent(), consent)


def test_the_next_region_serves(account: tuple[str, Any], tmp_path: Path) -> None:
    name, cloud = account
    first, second = REGIONS[name]
    used_up(name, cloud, first)
    provider = open_provider(name)
    ledger, reached = made(tmp_path, name, provider, lambda _: True)
    assert reached.machine.zone.startswith(second)
    outcomes = [(a.zone.startswith(first), a.outcome) for a in ledger.lease().attempts]
    assert outcomes[-1] == (False, "accepted")
    assert set(outcomes[:-1]) == {(True, "quota")}
    assert len({a.instance_type for a in ledger.lease().attempts[:-1]}) == len(outcomes) - 1, (
        "one zone of each"
    )
    provider.delete(reached.machine)


def test_where_no_region_has_quota_the_first_is_told_with_its_remedy(
    account: tuple[str, Any], tmp_path: Path
) -> None:
    name, cloud = account
    used_up(name, cloud, *REGIONS[name])
    with pytest.raises(ProviderError) as refused:
        made(tmp_path, name, open_provider(name), lambda _: True)
    error = refused.value
    assert (error.fault, error.exit_code) == (Fault.QUOTA, EXIT_CAPACITY)
    assert error.exists == "Nothing was created; nothing costs money."
    assert REGIONS[name][0] in str(error.next_command)
