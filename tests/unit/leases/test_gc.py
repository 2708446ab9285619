"""orch gc: machines that outlived their deadline are ended, all others stay, and what is unproven is said."""

from __future__ import annotations

import runpy
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.gc import gc_text
from orchestrator.errors import Fault, ProviderError
from orchestrator.leases import gc as module
from orchestrator.leases.gc import MARGIN, GcReport, due, expiry, gc
from orchestrator.model import (
    LABEL_EXPIRES,
    LABEL_LASTS,
    LABEL_LEASE,
    LABEL_OWNER,
    Machine,
    MachineSpec,
    MachineState,
)
from orchestrator.providers.memory import CATALOG, MemoryProvider, Mishap, Temper
from orchestrator.session import owner as identity
from orchestrator.session.project import Project
from tests.conftest import ROOT
from tests.unit.memory_cloud import opened_lease

NOW = datetime.fromtimestamp(1_800_000_000, UTC)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtQzVn0VdkT0Wm2yQ0nXUkPSpPkXyBzQkq5dlqCqk0a nobody"


@pytest.fixture(autouse=True)
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_S", 0.01)
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def machine(labels: Mapping[str, str]) -> Machine:
    return Machine("memory", "vm-1", "vm", MachineState.RUNNING, labels, "small", "r1-a", 0.05, NOW)


def late(minutes: float) -> dict[str, str]:
    """The labels of a machine whose deadline was so long before NOW."""
    expires = int((NOW - timedelta(minutes=minutes)).timestamp())
    return {LABEL_LEASE: f"job-{minutes}", LABEL_OWNER: "somebody", LABEL_EXPIRES: str(expires)}


def cloud(*machines: Mapping[str, str], gone_after: float = 0.0) -> MemoryProvider:
    """A cloud with machines of these labels, none of which ends by itself."""
    made = MemoryProvider(temper=Temper(gone_after=gone_after))
    for number, labels in enumerate(machines):
        far = datetime.fromtimestamp(time.time() + 3600, UTC)
        made.create(MachineSpec(f"orch-{number}", 0, CATALOG[0], 1 << 30, far, labels, KEY))
    return made


def run(*clouds: MemoryProvider, dry_run: bool = False) -> GcReport:
    named = {f"c{number}": one for number, one in enumerate(clouds)}
    return gc(list(named), dry_run=dry_run, others=True, now=NOW, opened=named.__getitem__)


def alive(made: MemoryProvider) -> set[str]:
    return {one.labels.get(LABEL_LEASE, "") for one in made.alive()}


# ---------------------------------------------------------------- which are due


@given(
    labels=st.dictionaries(
        st.sampled_from([LABEL_LEASE, LABEL_OWNER, LABEL_EXPIRES, "Name", "orch"]),
        st.one_of(st.text(max_size=12), st.integers(1_799_990_000, 1_800_010_000).map(str)),
    )
)
def test_only_what_is_labelled_and_late_is_due(labels: dict[str, str]) -> None:
    one = machine(labels)
    is_due, reason = due(one, NOW)
    expires = expiry(one)
    assert is_due == (LABEL_LEASE in labels and expires is not None and NOW - expires >= MARGIN)
    assert reason


@pytest.mark.parametrize("text", ["", "soon", "-5", "1e9", "1800000000.5", "٣", "9" * 40, " 1", "0x10"])
def test_a_label_that_is_no_time_ends_nothing(text: str) -> None:
    is_due, reason = due(machine({LABEL_LEASE: "x", LABEL_EXPIRES: text}), NOW)
    assert not is_due
    assert "not a time" in reason


@pytest.mark.parametrize("clock_off", [-86400, 0, 86400])
@pytest.mark.parametrize(("age", "ends"), [(timedelta(minutes=10), False), (timedelta(hours=2), True)])
def test_the_clock_of_the_client_decides_nothing(clock_off: int, age: timedelta, ends: bool) -> None:
    """Its provider knows since when it is there, and its label for how long it may be."""
    expires = int((NOW - age).timestamp()) + 3600 + clock_off
    labels = {LABEL_LEASE: "x", LABEL_EXPIRES: str(expires), LABEL_LASTS: "3600"}
    assert due(replace(machine(labels), created_at=NOW - age), NOW)[0] is ends


class SkewedHere:
    """`time` and `datetime` of a computer whose clock is wrong by `off` seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, off: float) -> None:
        class Wrong(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Wrong:
                return cls.fromtimestamp(real() + off, tz)

        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + off)
        monkeypatch.setattr(module, "datetime", Wrong)


@pytest.mark.parametrize("off", [-86400, -3600, 0, 3600, 86400, 86400 * 365])
@pytest.mark.parametrize(("lasts", "outcome"), [(3600, "left"), (60, "ended")])
def test_a_wrong_clock_here_ends_nothing_that_is_in_use(
    monkeypatch: pytest.MonkeyPatch, off: float, lasts: int, outcome: str
) -> None:
    """The machine is half an hour old, and its age is shown so."""
    theirs, begun = [0.0], time.time()
    made = MemoryProvider(clock=lambda: begun + theirs[0])
    labels = {LABEL_LEASE: "x", LABEL_LASTS: str(lasts)}
    far = datetime.fromtimestamp(begun + 36000, UTC)
    made.create(MachineSpec("orch-x", 0, CATALOG[0], 1 << 30, far, labels, KEY))
    theirs[0] = 1800.0
    SkewedHere(monkeypatch, off)
    (found,) = gc(["memory"], others=True, opened=lambda _: made).machines
    assert found.outcome == outcome
    assert ("is in 30 min" if outcome == "left" else "passed 29 min ago") in found.reason
    assert found.since == pytest.approx(0 if outcome == "left" else 29 / 60 * found.price)


def test_a_machine_of_which_no_age_is_known_is_left_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cloud({**late(600), LABEL_LASTS: "1"})
    listed = [replace(one, age=None) for one in made.list({})]
    monkeypatch.setattr(made, "list", lambda _: listed)
    report = gc(["memory"], others=True, opened=lambda _: made)
    (left,) = report.of("left")
    assert "its age is not known" in left.reason
    assert left.since == 0
    assert made.alive()


def test_a_deadline_that_only_its_maker_s_clock_told_is_said_to_be_so() -> None:
    (one,) = run(cloud(late(60))).of("ended")
    assert one.reason.startswith("by the clock of its creator, its deadline passed")


# ---------------------------------------------------------------- on a cloud


def test_the_late_are_ended_and_the_others_stay() -> None:
    made = cloud(late(11), late(5), late(-60), {LABEL_LEASE: "no-deadline"}, {"team": "other"}, late(6000))
    report = run(made)
    assert {one.lease for one in report.of("ended")} == {"job-11", "job-6000"}
    assert alive(made) == {"job-5", "job--60", "no-deadline", ""}
    assert report.proven
    assert report.as_json()["price_left_usd_hour"] == pytest.approx(4 * CATALOG[0].price)
    costs = {one.lease: one.since for one in report.machines}
    assert costs["job-6000"] == pytest.approx(100 * CATALOG[0].price)
    assert costs["job--60"] == 0


def test_again_there_is_nothing_to_do() -> None:
    made = cloud(late(60))
    assert len(run(made).of("ended")) == 1
    again = run(made)
    assert (again.machines, again.proven) == ((), True)


def test_a_dry_run_ends_nothing() -> None:
    made = cloud(late(60), late(-60))
    report = run(made, dry_run=True)
    assert [one.lease for one in report.of("due")] == ["job-60"]
    assert alive(made) == {"job-60", "job--60"}
    assert report.proven


def test_gone_is_said_only_when_it_is_seen() -> None:
    made = cloud(late(60), gone_after=0.2)
    assert run(made).of("ended")
    assert made.list({}) == []


def test_what_does_not_go_is_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GONE_LIMIT_S", 0.05)
    report = run(cloud(late(60), gone_after=1000))
    (one,) = report.of("unproven")
    assert "still listed" in one.reason
    assert not report.proven
    assert report.as_json()["price_left_usd_hour"] == CATALOG[0].price


def test_one_that_refuses_does_not_keep_the_others() -> None:
    made = cloud(late(60), late(61))
    made.fail_next("delete", Mishap(Fault.AUTH))
    report = run(made)
    assert (len(report.of("ended")), len(report.of("unproven"))) == (1, 1)
    assert len(alive(made)) == 1
    assert not report.proven


def test_what_nobody_saw_go_is_unproven() -> None:
    made = cloud(late(60))
    made.fail_next("find", Mishap(Fault.AUTH))
    assert run(made).of("unproven")


def test_an_empty_list_is_no_end() -> None:
    """The list is right once, and lags behind from then on."""
    made = cloud(late(60), gone_after=0.3)
    (seen,) = made.list({})
    made.list_nothing(1000, after=1)
    assert run(made).of("ended")
    assert made.find(seen) is None


def test_a_cloud_that_does_not_answer_does_not_keep_the_others() -> None:
    silent, other = cloud(late(60)), cloud(late(60))
    silent.fail_next("list", Mishap(Fault.AUTH))
    report = run(silent, other)
    assert list(report.unseen) == ["c0"]
    assert len(report.of("ended")) == 1
    assert not report.proven


def test_the_only_cloud_s_refusal_is_raised() -> None:
    silent = cloud()
    silent.fail_next("list", Mishap(Fault.AUTH))
    with pytest.raises(ProviderError):
        run(silent)


# ---------------------------------------------------------------- what it must leave


def swept(made: MemoryProvider, *, others: bool = False, discard: bool = False) -> GcReport:
    return gc(["memory"], others=others, discard=discard, now=NOW, opened=lambda _: made)


def test_another_owner_s_machine_is_left_unless_others_are_meant() -> None:
    mine = {**late(60), LABEL_LEASE: "mine", LABEL_OWNER: identity.owner(MemoryProvider())}
    made = cloud(late(60), mine)
    report = swept(made)
    assert [one.lease for one in report.of("ended")] == ["mine"]
    (left,) = report.of("left")
    assert "another owner: orch gc --others" in left.reason
    assert report.proven
    assert [one.lease for one in swept(made, others=True).of("ended")] == ["job-60"]


@pytest.mark.parametrize("ended", [False, True], ids=["a run goes on", "its results are there only"])
@pytest.mark.parametrize("others", [False, True])
def test_a_machine_with_results_that_nobody_has_is_kept(tmp_path: Path, ended: bool, others: bool) -> None:
    """Its ledger lies in another folder of this user."""
    labels = {**late(60), LABEL_LEASE: "busy", LABEL_OWNER: identity.owner(MemoryProvider())}
    made = cloud(labels)
    project = Project(tmp_path / "elsewhere")
    ledger = opened_lease(project, "busy")
    identity.note_folder("busy", project.root)
    ledger.append("run.started", run_id="one", draft={})
    if ended:
        ledger.append("run.ended", run_id="one", reason="completed")
    report = swept(made, others=others)
    (kept,) = report.of("kept")
    assert f"in {project.root}: orch pull one" in kept.reason
    assert "1 kept because of results that were not pulled" in gc_text(report.as_json())
    assert not report.proven
    assert alive(made) == {"busy"}
    ledger.append("run.collected", run_id="one")
    assert swept(made, others=others).of("ended")


def test_results_may_be_given_up(tmp_path: Path) -> None:
    labels = {**late(60), LABEL_LEASE: "busy", LABEL_OWNER: identity.owner(MemoryProvider())}
    made = cloud(labels)
    opened_lease(Project(tmp_path), "busy").append("run.started", run_id="one", draft={})
    assert swept(made).of("kept")
    assert swept(made, discard=True).of("ended")


# ---------------------------------------------------------------- what is shown


def test_the_text_tells_each_machine_and_the_sum() -> None:
    shown = gc_text(run(cloud(late(120), late(-90))).as_json())
    ended, left, total = shown.splitlines()
    assert ended.startswith("ended     vm-")
    assert "deadline passed 2 h ago ($0.0500/h, $0.10 since its deadline)" in ended
    assert "left" in left
    assert "in 90 min ($0.0500/h)" in left
    assert total == "2 machines on c0; 1 deleted. The remaining machines cost $0.0500/h."
    assert gc_text(run(cloud()).as_json()) == "orch has no machine on c0."


def test_the_reaper_is_allowed_what_gc_calls() -> None:
    """Of the calls that the script grants, each is one that the table knows."""
    from orchestrator.providers import permissions

    script = runpy.run_path(str(ROOT / "scripts/terraform_policies.py"))
    for name, calls in script["GC_CALLS"].items():
        for call in calls:
            assert {one.cloud for one in permissions.taken_by(call)} == {name}, call


def test_a_machine_that_is_stopped_before_its_deadline_is_left_with_what_it_costs() -> None:
    """An idle machine of Google without an identity of its own powers off; it cannot delete itself."""
    made = cloud(late(-60))
    (there,) = made.list({})
    stopped = replace(there, state=MachineState.STOPPED, detail={"stopped": "Its disk costs $10 a month."})
    made.list = lambda _labels: [stopped]  # type: ignore[method-assign,assignment]
    (found,) = gc(["memory"], opened=lambda _: made, others=True, now=NOW).machines
    assert found.outcome == "left"
    assert found.reason.endswith("deadline is in 60 min. Its disk costs $10 a month.")


def group_of(made: MemoryProvider, number: int) -> Machine:
    """A machine that is connected in a group of its own, which its lease does not name."""
    (machine,) = made.list({LABEL_LEASE: f"job-{number}"})
    made.join(f"gang-{number}", [machine], range(20_000, 20_001))
    return machine


def test_what_connected_machines_goes_with_the_last_of_them_and_nothing_else_does() -> None:
    made = cloud(late(60), late(-60))
    group_of(made, 60)
    stays = group_of(made, -60)
    rehearsed = run(made, dry_run=True)
    assert rehearsed.groups == () and set(made.groups) == {"gang-60", "gang--60"}
    report = run(made)
    assert [(one.cloud, one.group) for one in report.groups] == [("memory", "gang-60")]
    assert list(made.groups) == ["gang--60"] and report.proven
    assert "what connected the machines of gang-60" in gc_text(report.as_json())
    made.kill(stays)
    assert [one.group for one in run(made, dry_run=True).groups] == ["gang--60"]
    assert list(made.groups) == ["gang--60"]
    assert run(made).groups and not made.groups and not run(made).groups


def test_a_group_that_cannot_be_removed_is_no_failure() -> None:
    made = cloud(late(60))
    group_of(made, 60)
    made.fail_next("prune", Mishap(Fault.AUTH))
    report = run(made)
    assert report.proven and report.of("ended") and report.groups == ()
