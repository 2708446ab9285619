"""The cloud in memory as the verbs open it, and leases on it that are made without a guest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.leases.machine import receipt
from orchestrator.ledger import Ledger
from orchestrator.model import LABEL_LEASE, LABEL_OWNER, Machine, MachineSpec, Offer, Provider
from orchestrator.providers.memory import CATALOG, MemoryProvider
from orchestrator.providers.retry import RetryingProvider
from orchestrator.session.project import Project
from tests.opened_cloud import open_instead

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a nobody"
_CLOUDS: list[Provider] = []


def opened(state: Path | None = None) -> Provider:
    del state
    return _CLOUDS[-1]


def serve(cloud: MemoryProvider, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the verbs find `cloud` under these names ("memory" where none is given)."""
    _CLOUDS.append(RetryingProvider(cloud, base_s=0.001, cap_s=0.01, deadline_s=5.0))
    for name in names or ("memory",):
        open_instead(monkeypatch, name, f"{__name__}:opened")


def opened_lease(project: Project, name: str, cloud: str = "memory") -> Ledger:
    """A lease for which nothing was asked yet, with its key."""
    ledger = project.ledger(name)
    facts = {"name": name, "cloud": cloud, "path": "p.yaml", "overrides": [], "digest": "d"}
    ledger.append("lease.opened", lease=name, profile=facts)
    project.identity(name).write_text("a key")
    return ledger


def intent(ledger: Ledger, spec: MachineSpec) -> None:
    facts = {"instance_type": spec.offer.instance_type, "zone": spec.offer.zone, "price": spec.offer.price}
    deadline = spec.deadline.timestamp()
    ledger.append("create.intent", attempt=spec.attempt, spec_id=spec.id, deadline=deadline, **facts)


def spec_for(name: str, attempt: int = 0, *, offer: Offer = CATALOG[0], disk: int = 8 << 30) -> MachineSpec:
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    labels = {LABEL_LEASE: name, LABEL_OWNER: "me"}
    return MachineSpec(f"orch-{name}", attempt, offer, disk, deadline, labels, KEY)


def leased(project: Project, name: str, provider: Provider, spec: MachineSpec) -> Machine:
    """A lease of a machine, as `up` leaves it where nothing was installed."""
    ledger = opened_lease(project, name, provider.name)
    intent(ledger, spec)
    machine = provider.create(spec)
    ledger.record(receipt(spec.attempt, machine))
    return machine
