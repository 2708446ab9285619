"""A quota that only the create call tells leads to the next offer that it does not refuse as well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalog.names import GIB
from orchestrator.errors import EXIT_CAPACITY, Fault, ProviderError
from orchestrator.leases import machine as making
from orchestrator.leases.consent import Consent
from orchestrator.leases.offered import planned_of
from orchestrator.ledger import Ledger
from orchestrator.model import Machine, MachineSpec, Offer, Silent
from orchestrator.plan import Plan
from orchestrator.providers.memory import MemoryProvider
from orchestrator.session.project import Project
from orchestrator.session.reach import Reached
from tests.said import Said
from tests.unit.leases.test_capacity_wait import _reached, pauses, wanted
from tests.unit.memory_cloud import opened_lease

SMALL = Offer("memory", "small", "r1", "r1-a", 2, 4 * GIB, "x86_64", 0.05)
OFFERS = (
    SMALL,
    replace(SMALL, zone="r1-b", price=0.06),
    replace(SMALL, instance_type="large", cpus=8, memory=32 * GIB, price=0.07),
    replace(SMALL, region="r2", zone="r2-a", price=0.08),
)


class Counting(MemoryProvider):
    """Regions `full` have used their quota up; `everywhere`: it is one of all regions."""

    def __init__(self, *full: str, everywhere: bool = False) -> None:
        super().__init__(catalog=OFFERS)
        self.full = set(full)
        self.everywhere = everywhere
        self.asked: list[str] = []

    def create(self, spec: MachineSpec) -> Machine:
        self.asked.append(f"{spec.offer.instance_type} {spec.offer.zone}")
        if spec.offer.region not in self.full:
            return super().create(spec)
        told = f"The quota of {spec.offer.region} is used up."
        error = ProviderError(Fault.QUOTA, told, code="Limit", next_command=f"ask {spec.offer.region}")
        error.everywhere = self.everywhere
        raise error


@pytest.fixture(autouse=True)
def reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "wait_until_reachable", _reached)


def made(
    folder: Path,
    cloud: MemoryProvider,
    wait: str = "~",
    consent: Consent | None = None,
    tell: Said | None = None,
) -> tuple[Ledger, Reached]:
    place, profile = Project.at(folder), wanted(folder, wait)
    ledger = opened_lease(place, "digits")
    place.identity("digits").unlink()
    planned = planned_of(profile, cloud, ())
    consent = consent or Consent(None, profile)
    return ledger, making.machine_of(ledger, cloud, planned, profile, place, tell or Silent(), consent)


def test_the_next_region_is_tried_and_what_the_quota_refuses_too_is_not(tmp_path: Path) -> None:
    cloud, tell = Counting("r1"), Said()
    ledger, _ = made(tmp_path, cloud, tell=tell)
    assert cloud.asked == ["small r1-a", "small r2-a"]
    assert [a.outcome for a in ledger.lease().attempts] == ["quota", "accepted"]
    assert "The quota of r1 is used up." in tell.lines


def test_a_dearer_next_offer_is_asked_about(tmp_path: Path) -> None:
    shown: list[Plan] = []

    def approve(plan: Plan) -> bool:
        shown.append(plan)
        return False

    cloud = Counting("r1")
    with pytest.raises(ProviderError) as refused:
        made(tmp_path, cloud, consent=Consent(approve, wanted(tmp_path, "~")))
    (again,) = shown
    assert (again.price, refused.value.code) == (0.08, "DearerNotApproved")
    assert not cloud.alive()


@pytest.mark.parametrize("everywhere", [True, False])
def test_where_quotas_alone_refuse_the_error_is_that_of_the_first(tmp_path: Path, everywhere: bool) -> None:
    cloud = Counting("r1", "r2", everywhere=everywhere)
    with pytest.raises(ProviderError) as refused:
        made(tmp_path, cloud)
    error = refused.value
    assert cloud.asked == ["small r1-a"] if everywhere else ["small r1-a", "small r2-a"]
    assert (error.fault, error.exit_code, error.code) == (Fault.QUOTA, EXIT_CAPACITY, "Limit")
    assert "The quota of r1 is used up." in error.message
    assert (error.exists, error.next_command) == ("Nothing was created; nothing costs money.", "ask r1")


def test_no_wait_raises_a_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = pauses(monkeypatch, lambda _: None)
    with pytest.raises(ProviderError):
        made(tmp_path, Counting("r1", "r2"), wait="2h")
    assert slept == []


def test_it_waits_for_what_the_quota_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Counting("r1")
    cloud.sell_out("small", "r2-a")
    slept = pauses(monkeypatch, lambda _: cloud.restock())
    _, reached = made(tmp_path, cloud, wait="2h")
    assert slept == [15.0]
    assert cloud.asked == ["small r1-a", "small r2-a", "small r2-a"]
    assert reached.machine.zone == "r2-a"
