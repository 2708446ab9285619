"""A refusal that comes after a create call may have taken effect does not say that nothing was made."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import Fault, ProviderError
from orchestrator.leases.down import down
from orchestrator.leases.remains import describe_remains
from orchestrator.model import Machine
from orchestrator.providers.memory import MemoryProvider, Mishap
from orchestrator.providers.retry import RetryingProvider
from orchestrator.session import machines
from orchestrator.session.project import Project
from tests.said import Said
from tests.unit.leases.test_capacity_wait import made, wanted
from tests.unit.memory_cloud import serve, spec_for

LOST = Mishap(Fault.TRANSIENT, after_effect=True)
EXPIRED = Mishap(Fault.AUTH)
COUNTED = Mishap(Fault.QUOTA)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> MemoryProvider:
    monkeypatch.setattr(machines, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(machines, "_LIST_SECONDS", 0.05)
    cloud = MemoryProvider()
    serve(cloud, monkeypatch)
    return cloud


@pytest.mark.parametrize(
    ("mishaps", "undecided"),
    [
        ((EXPIRED,), False),
        ((LOST, EXPIRED), True),
        ((Mishap(Fault.TRANSIENT), Mishap(Fault.INVALID)), True),
        ((Mishap(Fault.TRANSIENT), COUNTED), False),
        ((Mishap(Fault.BUSY), EXPIRED), False),
    ],
)
def test_what_a_repeated_call_meets_says_nothing_of_the_first(
    cloud: MemoryProvider, mishaps: tuple[Mishap, ...], undecided: bool
) -> None:
    patient = RetryingProvider(cloud, sleep=lambda _: None)
    cloud.fail_next("create", *mishaps)
    with pytest.raises(ProviderError) as refused:
        patient.create(spec_for("a"))
    assert refused.value.undecided is undecided


class Refused(MemoryProvider):
    """As a cloud whose answer is read after it accepted the call."""

    def create(self, spec: object) -> Machine:
        made = super().create(spec)  # type: ignore[arg-type]
        if len(self.alive()) == 1 and not self.told:
            self.told = True
            error = ProviderError(Fault.AUTH, "The credentials are expired.", code="Expired")
            error.undecided = True
            raise error
        return made

    told = False


def test_it_is_told_with_its_price_and_down_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Refused()
    serve(cloud, monkeypatch)
    place, profile = Project.at(tmp_path), wanted(tmp_path, "~")
    with pytest.raises(ProviderError) as refused:
        made(place, cloud, profile, Said())
    assert cloud.alive()
    ledger = place.ledger("digits")
    with pytest.raises(ProviderError), describe_remains(ledger):
        raise refused.value
    assert "may have been created, at $" in str(refused.value.exists)
    assert not ledger.lease().attempts[-1].settled
    down(folder=place.root)
    assert not cloud.alive()


def test_the_next_call_takes_what_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Refused()
    serve(cloud, monkeypatch)
    place, profile = Project.at(tmp_path), wanted(tmp_path, "~")
    with pytest.raises(ProviderError):
        made(place, cloud, profile, Said())
    (there,) = cloud.alive()
    _, reached = made(place, cloud, profile, Said())
    assert [reached.machine.id] == [one.id for one in cloud.alive()] == [there.id]


def test_a_call_after_a_killed_one_that_is_refused_leaves_it_open(
    tmp_path: Path, cloud: MemoryProvider
) -> None:
    """Killed between the call and its receipt; by the next one the credentials have expired."""
    place, profile = Project.at(tmp_path), wanted(tmp_path, "~")
    cloud.fail_next("create", LOST)
    with pytest.raises(ProviderError):
        made(place, cloud, profile, Said())
    assert cloud.alive()
    cloud.fail_next("create", EXPIRED)
    with pytest.raises(ProviderError) as refused:
        made(place, cloud, profile, Said())
    assert refused.value.fault is Fault.AUTH
    assert not place.lease("digits").attempts[-1].settled
    down(folder=place.root)
    assert not cloud.alive()
