"""A machine that `up` made and could not prepare is ended, and the error says so; nothing else is ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import orchestrator as orch
from orchestrator import stack
from orchestrator.errors import Fault, HostError, HostKeyError, LocalError, ProviderError, StackError
from orchestrator.leases import provision
from orchestrator.model import Machine, MachineSpec
from orchestrator.session import session
from tests.said import Said
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud


class Job(NamedTuple):
    cloud: HereCloud
    profile: Path
    told: Said

    def up(self, **options: Any) -> orch.LeaseStatus:
        return orch.up(self.profile, folder=self.profile.parent, progress=self.told, **options)

    @property
    def alive(self) -> int:
        return len(self.cloud.alive())


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    made = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    return Job(made, here_cloud.project(tmp_path / "p", "print('hello')\n"), Said())


def auth() -> ProviderError:
    return ProviderError(Fault.AUTH, "The credentials have expired.")


STAGES: dict[str, tuple[object, str, Callable[[], BaseException]]] = {
    "boot": (HereCloud, "endpoint", auth),
    "silent": (provision, "machine_of", lambda: HostError("It did not answer.")),
    "host key": (session, "connect_verified", lambda: HostKeyError("Another key.", next_command="orch down")),
    "connection": (here_cloud.Door, "run", lambda: HostError("The connection broke.")),
    "runtime": (stack, "bootstrap", lambda: StackError("No interpreter.")),
    "watch": (session.Session, "watch_idleness", lambda: HostError("No watcher.")),
    "gpu": (provision, "require_gpus", lambda: StackError("No GPU.", next_command="orch down && orch up p")),
    "install": (session.Session, "install", lambda: StackError("No space left there.")),
    "our disk": (session.Session, "install", lambda: OSError(28, "No space left on device")),
    "ours": (session.Session, "install", lambda: ZeroDivisionError("a defect of ours")),
    "confine": (session.Session, "confine", lambda: HostError("It hangs.")),
}


def fail(at: str, monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None) -> BaseException:
    """Let `up` fail at that stage, once its machine is made."""
    place, name, of = STAGES[at]
    failure, real = error or of(), getattr(place, name)

    def refuse(*arguments: Any, **options: Any) -> Any:
        if name == "machine_of":
            real(*arguments, **options)
        raise failure

    monkeypatch.setattr(place, name, refuse)
    return failure


@pytest.mark.parametrize("at", STAGES)
def test_what_could_not_be_prepared_is_ended(job: Job, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        failure = fail(at, broken)
        with pytest.raises((orch.OrchError, ZeroDivisionError)) as failed:
            job.up()
    assert job.alive == 0
    assert isinstance(failed.value, (type(failure), LocalError))
    told = failed.value.exists if isinstance(failed.value, orch.OrchError) else job.told.lines[-1]
    assert "was deleted, and cost $" in str(told) and str(told).endswith("nothing costs money.")
    if isinstance(failed.value, orch.OrchError):
        assert failed.value.next_command == f"orch up {job.profile}"
    assert not orch.status(folder=job.profile.parent), "its lease is closed"


@pytest.mark.parametrize("at", ["boot", "runtime", "install"])
def test_keep_leaves_it_and_says_what_it_costs(job: Job, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        fail(at, broken)
        with pytest.raises(orch.OrchError) as failed:
            job.up(keep=True)
    assert job.alive == 1
    assert "is still running, at $0.05/h until" in str(failed.value.exists)
    assert "orch down" in str(failed.value.next_command)
    assert job.up().state == "running" and job.alive == 1, "the same machine, prepared"


def test_a_machine_of_an_earlier_call_stays(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    held = job.up()
    fail("install", monkeypatch)
    with pytest.raises(orch.StackError) as failed:
        job.up()
    assert f"{held.machine} is still running, at $0.05/h" in str(failed.value.exists)
    assert job.alive == 1


def test_a_machine_of_a_call_that_was_killed_stays(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        """The process of `up` ended here."""

    with monkeypatch.context() as broken:
        fail("install", broken, Killed())
        with pytest.raises(Killed):
            job.up()
    assert job.alive == 1
    fail("install", monkeypatch)
    with pytest.raises(orch.StackError):
        job.up()
    assert job.alive == 1


def test_a_machine_that_is_found_gets_what_its_create_did_not_do(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """The process of `up` ended here."""

    real = HereCloud.create

    def made_and_killed(cloud: HereCloud, spec: MachineSpec) -> Machine:
        real(cloud, spec)
        raise Killed

    guarded: list[tuple[str, float]] = []

    def guard(_: HereCloud, machine: Machine, lasts: float) -> Machine:
        guarded.append((machine.id, lasts))
        return replace(machine, detail={**machine.detail, "no_alarm": "You may not make alarms."})

    with monkeypatch.context() as broken:
        broken.setattr(HereCloud, "create", made_and_killed)
        with pytest.raises(Killed):
            job.up()
    (alive,) = job.cloud.alive()
    monkeypatch.setattr(HereCloud, "guard", guard)
    assert job.up().machine == alive.id
    assert [(machine, 0 < lasts <= 3600) for machine, lasts in guarded] == [(alive.id, True)]
    assert any("You may not make alarms." in line for line in job.told.lines)
    job.up()
    assert len(guarded) == 1, "of a machine that the ledger knows nothing is made again"


def test_a_machine_whose_end_is_refused_is_named_with_its_price(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise auth()

    fail("install", monkeypatch)
    monkeypatch.setattr(HereCloud, "delete", refuse)
    with pytest.raises(orch.StackError) as failed:
        job.up()
    assert "could not be deleted: The credentials have expired. It may cost $0.05/h" in str(
        failed.value.exists
    )
    assert failed.value.next_command == "orch down"


def test_an_interrupt_ends_it_and_a_second_one_leaves_it(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    fail("install", monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt) as pressed:
        job.up()
    assert "was deleted" in str(pressed.value) and job.alive == 0

    def again(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(HereCloud, "delete", again)
    with pytest.raises(KeyboardInterrupt) as pressed:
        job.up()
    said = str(pressed.value)
    assert "may still be running, at $0.05/h" in said and "Next: orch down" in said
    assert job.alive == 1
