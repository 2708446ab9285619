"""Several machines for one model: all in one zone or none, and none that existed before is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import orchestrator as orch
from orchestrator.errors import Busy, Fault, LintRefused, ProviderError, UsageError
from orchestrator.leases import joining
from orchestrator.leases.consent import Approve
from orchestrator.plan import Plan
from orchestrator.providers.memory import Mishap
from orchestrator.session import session
from orchestrator.session.project import Project
from tests.said import Said
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

SLOW = "import time\ntime.sleep(600)\n"


class Gang(NamedTuple):
    cloud: HereCloud
    profile: Path
    told: Said

    def up(self, approve: Approve | None = None, *overrides: str) -> orch.LeaseStatus:
        folder, told = self.profile.parent, self.told
        return orch.up(self.profile, folder=folder, progress=told, approve=approve, overrides=overrides)

    @property
    def zones(self) -> list[str]:
        return [machine.zone for machine in self.cloud.alive()]


@pytest.fixture
def gang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gang:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    made = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    profile = here_cloud.project(tmp_path / "p", SLOW)
    profile.write_text(profile.read_text().replace("cpus: 2", "cpus: 2, nodes: 3"))
    return Gang(made, profile, Said())


def test_all_are_in_one_zone_and_end_together(gang: Gang) -> None:
    status = gang.up()
    assert gang.zones == ["r1-a"] * 3
    assert orch.status(folder=gang.profile.parent)[0].lease == status.lease
    assert gang.up().machine == status.machine and len(gang.zones) == 3, "the same call changes nothing"
    orch.down(folder=gang.profile.parent)
    assert gang.zones == [] and not orch.status(folder=gang.profile.parent)


def test_where_the_last_one_finds_no_room_all_are_made_in_the_next_zone(gang: Gang) -> None:
    gang.cloud.limit("r1-a", 2)
    gang.up()
    assert gang.zones == ["r1-b"] * 3


def test_where_no_zone_has_room_for_all_nothing_is_left(gang: Gang) -> None:
    gang.cloud.limit("r1-a", 2)
    gang.cloud.limit("r1-b", 1)
    with pytest.raises(ProviderError) as failed:
        gang.up()
    assert failed.value.fault is Fault.CAPACITY
    assert "deleted" in str(failed.value.exists) and "nothing costs money" in str(failed.value.exists)
    assert gang.zones == [] and not orch.status(folder=gang.profile.parent)


def asked(plans: list[Plan], answer: bool) -> Callable[[Plan], bool]:
    def approve(plan: Plan) -> bool:
        plans.append(plan)
        return answer

    return approve


def test_the_question_is_about_all_and_asked_again_for_a_dearer_zone_only(gang: Gang) -> None:
    plans: list[Plan] = []
    gang.up(asked(plans, True))
    assert [(plan.nodes, plan.price) for plan in plans] == [(3, 0.05)]
    orch.down(folder=gang.profile.parent)
    gang.cloud.limit("r1-a", 2)
    plans.clear()
    gang.up(asked(plans, True))
    assert [(plan.nodes, plan.price) for plan in plans] == [(3, 0.05), (3, 0.06)]


def test_without_approval_nothing_is_created(gang: Gang) -> None:
    with pytest.raises(UsageError, match="Not approved"):
        gang.up(asked([], False))
    assert gang.zones == []


def test_the_limit_of_the_price_is_that_of_all(gang: Gang) -> None:
    gang.up(None, "max_price=0.15")
    orch.down(folder=gang.profile.parent)
    with pytest.raises(ProviderError):
        gang.up(None, "max_price=0.14")
    assert gang.zones == []


def test_a_quota_for_some_of_them_leaves_none(gang: Gang) -> None:
    gang.cloud._quota_cpus = 5
    with pytest.raises(ProviderError):
        gang.up()
    assert gang.zones == [] and not orch.status(folder=gang.profile.parent)


def test_one_that_cannot_be_prepared_takes_the_others_with_it(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = session.Session.install

    def install(self: session.Session) -> object:
        if self.rank == 2:
            raise orch.StackError("A package is missing.")
        return real(self)

    monkeypatch.setattr(session.Session, "install", install)
    with pytest.raises(orch.StackError) as failed:
        gang.up()
    assert "All machines that this call created were deleted" in str(failed.value.exists)
    assert gang.zones == [] and not orch.status(folder=gang.profile.parent)


def test_machines_of_an_earlier_call_stay_whatever_fails_now(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a run on them: the later call did not create them."""
    gang.up()
    before = {machine.id for machine in gang.cloud.alive()}
    orch.train(run_id="slow", folder=gang.profile.parent, detach=True, progress=gang.told)
    with monkeypatch.context() as broken:
        broken.setattr(session.Session, "install", lambda _: (_ for _ in ()).throw(orch.StackError("No.")))
        with pytest.raises(orch.StackError):
            gang.up()
    assert {machine.id for machine in gang.cloud.alive()} == before
    orch.cancel("slow", folder=gang.profile.parent)
    assert orch.pull("slow", folder=gang.profile.parent).exit["reason"] == "cancelled"


def test_one_with_results_is_not_deleted_for_a_zone_with_room_for_all(gang: Gang) -> None:
    gang.up()
    orch.train(run_id="slow", folder=gang.profile.parent, detach=True, progress=gang.told)
    first, *_, last = gang.cloud.alive()
    gang.cloud.limit("r1-a", 2)
    gang.cloud.take_back(last)
    with pytest.raises(Busy) as refused:
        gang.up()
    assert "slow" in refused.value.message and "orch pull" in str(refused.value.next_command)
    assert first.id in {machine.id for machine in gang.cloud.alive()}


def test_a_lost_one_is_made_again_where_the_others_are(gang: Gang) -> None:
    gang.cloud.limit("r1-a", 0)
    gang.up()
    gang.cloud.restock()
    gang.cloud.take_back(gang.cloud.alive()[0])
    gang.up()
    assert gang.zones == ["r1-b"] * 3


def test_a_network_that_cannot_be_opened_leaves_nothing(gang: Gang) -> None:
    gang.cloud.fail_next("join", Mishap(Fault.AUTH))
    with pytest.raises(ProviderError):
        gang.up()
    assert gang.zones == []


def test_machines_that_do_not_reach_each_other_are_named_and_deleted(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "_MEETING_S", 1.0)
    monkeypatch.setattr(gang.cloud, "_group_address", lambda _: "192.0.2.1")
    with pytest.raises(orch.HostError, match="node 0 does not reach node 1") as failed:
        gang.up()
    assert gang.zones == [] and failed.value.next_command == f"orch up {gang.profile}"


def test_fewer_than_there_are_is_refused(gang: Gang) -> None:
    gang.up()
    with pytest.raises(UsageError, match=r"has 3 machines, and resources\.nodes is now 2"):
        gang.up(None, "resources.nodes=2")
    assert len(gang.zones) == 3


def test_what_several_machines_cannot_do_is_refused_before_they_are_paid_for(gang: Gang) -> None:
    (gang.profile.parent / "train.py").write_text(
        "import keras\nimport tensorflow as tf\n"
        "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
        "with strategy.scope():\n    model = keras.Sequential([keras.layers.Dense(1)])\n"
        "    model.compile(loss='mse')\nmodel.fit([[1.0]], [[1.0]])\n"
    )
    with pytest.raises(LintRefused, match="ORC210"):
        gang.up()
    assert gang.zones == []


def tries(gang: Gang) -> list[list[tuple[str, str]]]:
    """By machine, the placement group and the outcome of each create call."""
    project = Project.at(gang.profile.parent)
    leases = sorted(project.leases(), key=lambda lease: lease.rank)
    return [[(attempt.group, attempt.outcome) for attempt in lease.attempts] for lease in leases]


def test_all_are_placed_close_together(gang: Gang) -> None:
    group = gang.up().lease
    assert tries(gang) == [[(group, "accepted")]] * 3
    orch.down(folder=gang.profile.parent)
    assert not gang.cloud.groups


def test_where_there_is_no_room_close_by_it_is_placed_elsewhere_in_the_zone_and_said(gang: Gang) -> None:
    gang.cloud.crowd("r1-a", 2)
    group = gang.up().lease
    assert gang.zones == ["r1-a"] * 3
    first, *others = tries(gang)
    assert first == [(group, "accepted")]
    assert sorted(others) == [[(group, "accepted")], [(group, "capacity"), ("", "accepted")]]
    assert sum("Not placed close to the other machines" in line for line in gang.told.lines) == 1


@pytest.mark.parametrize("fault", [Fault.AUTH, Fault.INVALID, Fault.QUOTA])
def test_who_may_not_place_machines_close_together_gets_them_apart(gang: Gang, fault: Fault) -> None:
    gang.cloud.fail_next("create", Mishap(fault))
    gang.up()
    assert len(gang.zones) == 3
    assert [outcome for _, outcome in tries(gang)[0]] == [str(fault), "accepted"]


def test_an_interrupted_call_goes_on_with_the_group_it_had_begun_with(gang: Gang) -> None:
    gang.cloud.fail_next("create", Mishap(Fault.UNKNOWN, after_effect=True))
    with pytest.raises(ProviderError):
        gang.up()
    assert gang.zones == [] and not gang.cloud.groups, "what was begun is gone, and so is its group"


def test_one_machine_is_placed_anywhere(gang: Gang) -> None:
    gang.up(None, "resources.nodes=1")
    assert tries(gang) == [[("", "accepted")]] and not gang.cloud.groups
