"""Several machines on the emulated clouds: placed close together, all or none, and nothing left of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.errors import Fault, ProviderError
from orchestrator.leases import gang, joining
from orchestrator.leases.gc import gc
from orchestrator.model import LABEL_LEASE, Machine, MachineSpec, MachineState, Need, Provider
from orchestrator.providers import open_provider
from orchestrator.session.project import Project
from tests.clouds import aws_reach, gcp_reach
from tests.clouds.aws_asking import await_that
from tests.clouds.failing import Ground
from tests.conformance.bed import PUBLIC_KEY
from tests.conformance.test_groups import killed_before
from tests.said import Said
from tests.unit.terraform_files import TERRAFORM

TYPES = {"aws": ("c6i.large", "t3.large"), "gcp": ("n2-standard-2", "e2-standard-2")}
"""By cloud, a type that can be placed close together, and one that cannot."""
ZONES = {"aws": "us-east-1a", "gcp": "us-central1-a"}
PORTS = range(20_000, 20_010)
CALLS = {
    "aws": {
        "group": "CreatePlacementGroup",
        "machine": "RunInstances",
        "removal": "DeletePlacementGroup",
    },
    "gcp": {
        "group": "POST us-central1/resourcePolicies",
        "machine": "POST us-central1-a/instances",
        "removal": "DELETE resourcePolicies/[^:]*",
    },
}
"""The effects around which a process is killed."""


@dataclass(frozen=True)
class Gang:
    """A project of several machines on one of the clouds. `crowd`: room in a placement group."""

    ground: Ground
    project: Project
    groups: Callable[[], list[str]]
    placed: Callable[[], list[str]]
    crowd: Callable[[int], None]
    short: Callable[[int], None]
    permit: Callable[[list[str] | None], None]
    told: Said

    def up(self, nodes: int, kind: int = 0) -> str:
        wanted = [f"resources.nodes={nodes}", f"resources.instance_type={TYPES[self.ground.name][kind]}"]
        zone = f"zone={ZONES[self.ground.name]}"
        profile, folder = self.project.root / "orch.yaml", self.project.root
        return orch.up(profile, folder=folder, overrides=[*wanted, zone], progress=self.told).lease

    def down(self) -> None:
        orch.down(folder=self.project.root, progress=self.told)

    def alive(self) -> list[str]:
        return self.ground.alive("job")

    def nothing(self) -> bool:
        return not self.alive() and not self.groups()


@pytest.fixture
def several(
    ground: Ground, project: Project, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gang]:
    """Nothing boots, so the machines are not asked whether they reach each other."""
    monkeypatch.setattr(gang, "open_session", _at_the_door)
    monkeypatch.setattr(joining, "require_met", lambda *_: None)
    made = _on_aws if ground.name == "aws" else _on_google
    profile = project.root / "orch.yaml"
    text = profile.read_text().replace(f"{ground.place}\n", "")
    profile.write_text(text.replace(f"cpus: 2, memory: {ground.memory}, ", ""))
    yield made(ground, project, request)
    orch.down(folder=project.root, discard=True)


@contextmanager
def _at_the_door(_: Project, ledger: Any, *__: object, **___: object) -> Iterator[SimpleNamespace]:
    yield SimpleNamespace(ledger=ledger)


def _on_aws(ground: Ground, project: Project, request: pytest.FixtureRequest) -> Gang:
    cloud = request.getfixturevalue("shared_aws")

    def placed() -> list[str]:
        found = cloud.client("ec2").describe_instances()["Reservations"]
        instances = [one for each in found for one in each["Instances"] if one["State"]["Name"] == "running"]
        return [one["Placement"]["GroupName"] for one in instances if one["Placement"].get("GroupName")]

    def short(after: int) -> None:
        fault = {"action": "RunInstances", "code": "InsufficientInstanceCapacity", "zone": ZONES["aws"]}
        cloud.faults({**fault, "skip": after, "times": -1})

    def permit(actions: list[str] | None) -> None:
        allowed = {"Effect": "Allow", "Action": actions, "Resource": "*"}
        cloud.set(policy=actions and {"Version": "2012-10-17", "Statement": [allowed]})

    return Gang(
        ground,
        project,
        lambda: list(aws_reach.groups(cloud)),
        placed,
        lambda room: cloud.set(crowded={ZONES["aws"]: room}),
        short,
        permit,
        Said(),
    )


def _on_google(ground: Ground, project: Project, request: pytest.FixtureRequest) -> Gang:
    from tests.clouds.gcp.permissions import NEEDED

    cloud = request.getfixturevalue("shared_google")

    def placed() -> list[str]:
        found = [one.get("resourcePolicies", ()) for one in cloud.state()["instances"]]
        return [policy.rpartition("/")[2] for each in found for policy in each]

    def short(after: int) -> None:
        fault = {"method": "compute.instances.insert", "kind": "stockout", "zone": ZONES["gcp"]}
        cloud.faults({**fault, "after": after, "times": 10_000})

    def permit(permissions: list[str] | None) -> None:
        known = {name for names in NEEDED.values() for name in names} | {"compute.resourcePolicies.use"}
        cloud.settings(denied=[] if permissions is None else sorted(known - set(permissions)))

    return Gang(
        ground,
        project,
        lambda: list(gcp_reach.groups(cloud)),
        placed,
        lambda room: cloud.settings(crowded={ZONES["gcp"]: room}),
        short,
        permit,
        Said(),
    )


def test_they_are_close_together_and_nothing_is_left_of_them(several: Gang) -> None:
    lease = several.up(2)
    (group, other) = several.placed()
    assert group == other and group.startswith(f"orch-group-{lease}-")
    assert sorted(several.groups()) == sorted([f"orch-group-{lease}", group])
    assert several.up(2) == lease and len(several.placed()) == 2, "the same call changes nothing"
    several.down()
    assert several.nothing()


def test_without_room_close_by_it_is_anywhere_in_the_zone_and_the_user_is_told(several: Gang) -> None:
    several.crowd(1)
    several.up(2)
    assert len(several.alive()) == 2 and len(several.placed()) == 1
    assert len(several.told.about("Not placed close to the other machines")) == 1
    several.down()
    assert several.nothing()


def test_types_without_a_fast_network_have_no_placement_group(several: Gang) -> None:
    lease = several.up(2, 1)
    assert several.placed() == [] and several.groups() == [f"orch-group-{lease}"]


def test_a_fourth_machine_that_is_out_of_stock_leaves_nothing(several: Gang) -> None:
    several.short(3)
    with pytest.raises(ProviderError) as failed:
        several.up(4)
    assert failed.value.fault is Fault.CAPACITY
    assert "All machines that this call created were deleted" in str(failed.value.exists)
    assert several.nothing() and not orch.status(folder=several.project.root)


def test_who_may_not_place_machines_gets_them_apart(several: Gang) -> None:
    """The permissions of an older terraform/."""
    names = orch_permissions(several.ground.name)
    several.permit([name for name in names if "lacementGroup" not in name and "resourcePolic" not in name])
    several.up(2)
    assert len(several.alive()) == 2 and several.placed() == []
    assert len(several.told.about("Not placed close to the other machines")) == 2
    several.down()
    several.permit(None)
    assert several.nothing()


def orch_permissions(cloud: str) -> list[str]:
    from orchestrator.providers import permissions

    return [one.name for one in permissions.of(cloud)]


# ---------------------------------------------------------------- without a ledger


def spec_of(cloud: str, provider: Provider, name: str, attempt: int = 0) -> MachineSpec:
    kind, zone = TYPES[cloud][0], ZONES[cloud]
    offer = next(one for one in provider.offers(Need(cloud, instance_type=kind, zone=zone)) if not one.spot)
    end = datetime.now(UTC) + timedelta(hours=1)
    labels = {LABEL_LEASE: name, "orch-owner": "somebody"}
    return MachineSpec(
        f"orch-{name}", attempt, offer, 12 << 30, end, labels, PUBLIC_KEY, lasts=3600.0, group=name
    )


def gone(provider: Provider, machines: list[Machine]) -> None:
    for machine in machines:
        provider.delete(machine)
    await_that(lambda: not any(provider.find(machine) for machine in machines))


def test_gc_removes_the_groups_of_machines_that_are_gone_and_no_other(several: Gang) -> None:
    """With no more permissions than the reaper has."""
    cloud = several.ground.name
    provider = open_provider(cloud)
    dead, lives = (provider.create(spec_of(cloud, provider, name)) for name in ("dead", "lives"))
    for machine in (dead, lives):
        running(provider, machine)
        provider.join(machine.labels[LABEL_LEASE], [machine], PORTS)
    before = several.groups()
    gone(provider, [dead])
    several.permit(reaper_permissions(cloud))
    assert [one.group for one in gc([cloud], others=True, dry_run=True).groups] == ["dead"]
    assert several.groups() == before
    assert [one.group for one in gc([cloud], others=True).groups] == ["dead"]
    assert sorted(several.groups()) == sorted(name for name in before if "-lives" in name)
    assert gc([cloud], others=True).groups == ()
    several.permit(None)
    gone(provider, [lives])
    assert [one.group for one in gc([cloud], others=True).groups] == ["lives"] and several.groups() == []


def running(provider: Provider, machine: Machine) -> None:
    await_that(lambda: (found := provider.find(machine)) and found.state is MachineState.RUNNING)


def reaper_permissions(cloud: str) -> list[str]:
    file = {"aws": "aws/reaper-policy.json", "gcp": "gcp/reaper-roles.json"}[cloud]
    found = json.loads((TERRAFORM / file).read_text())
    if cloud == "aws":
        return [action for statement in found["Statement"] for action in statement["Action"]]
    return [name for role in found.values() for name in role["permissions"]]


@pytest.mark.parametrize("when", ["asked", "answered"])
@pytest.mark.parametrize("what", ["group", "machine"])
def test_killed_around_a_call_it_is_found_again(several: Gang, what: str, when: str) -> None:
    cloud = several.ground.name
    provider, name = open_provider(cloud), f"killed-{what}-{when}"
    spec = spec_of(cloud, provider, name)
    assert killed_before(f"{CALLS[cloud][what]}: {when}", lambda: provider.create(spec))
    machine = provider.create(spec)
    assert [one.id for one in provider.list({LABEL_LEASE: name})] == [machine.id]
    assert len(several.placed()) == 1
    gone(provider, [machine])
    assert killed_before(f"{CALLS[cloud]['removal']}: {when}", lambda: provider.separate(name))
    provider.separate(name)
    assert several.groups() == []
