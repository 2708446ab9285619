"""A call that is interrupted, or refused, while a run goes on says that it goes on, and the one command."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import orchestrator as orch
from orchestrator.api.logs import logs
from orchestrator.cli.app import app
from orchestrator.errors import BeforeTheRun, Interrupted
from orchestrator.ledger import Ledger
from orchestrator.model import clouds
from tests.said import Said
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = pytest.mark.processes

SCRIPT = """
import pathlib, time
print("begun", flush=True)
while not pathlib.Path("{go}").exists():
    time.sleep(0.05)
"""


class Job:
    """A project whose run ends once `go` exists."""

    def __init__(self, tmp_path: Path, cloud: HereCloud) -> None:
        self.cloud, self.folder, self.go = cloud, tmp_path / "p", tmp_path / "go"
        self.lines: list[str] = []
        self.profile = here_cloud.project(self.folder, SCRIPT.format(go=self.go))

    def interrupt(self, data: bytes) -> None:
        if b"begun" in data:
            raise KeyboardInterrupt

    def lease(self, *, ask: bool = False) -> orch.LeaseStatus:
        (lease,) = orch.status(folder=self.folder, ask=ask)
        return lease


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True))


def test_run_says_that_its_run_goes_on_and_how_to_go_on(job: Job) -> None:
    wishes = {"overrides": ("parity.steps=3", "train.env.GREETING=hunter2"), "retry_failed": False}
    with pytest.raises(Interrupted) as caught:
        orch.run(job.profile, run_id="rs", folder=job.folder, output=job.interrupt, **wishes)  # type: ignore[arg-type]
    machine = job.lease().machine
    assert caught.value.exists == f"The machine {machine} was left running, at $0.05/h: rs goes on there."
    assert caught.value.next_command == (
        f"orch run {job.profile} --run-id rs --no-retry-failed --set parity.steps=3 "
        "--set train.env.GREETING=…    # goes on from here; or: orch watch rs"
    )
    job.go.touch()
    assert orch.watch("rs", folder=job.folder, overrides=("train.env.GREETING=hunter2",)).succeeded
    assert not job.cloud.alive()


def test_watch_names_itself_and_not_the_command_that_it_stands_for(job: Job) -> None:
    orch.run(job.profile, run_id="rs", folder=job.folder, detach=True)
    with pytest.raises(Interrupted) as caught:
        orch.watch("rs", folder=job.folder, output=job.interrupt)
    assert "rs goes on there" in caught.value.exists
    assert caught.value.next_command == "orch watch rs    # goes on from here"


def test_train_says_what_goes_on_and_its_price(job: Job) -> None:
    orch.up(job.profile, folder=job.folder)
    with pytest.raises(Interrupted) as caught:
        orch.train(run_id="rs", folder=job.folder, output=job.interrupt)
    assert caught.value.exists == "rs continues on its machine, at $0.05/h."
    assert caught.value.next_command.startswith("orch logs -f rs ")
    assert "orch watch rs" in caught.value.next_command and "orch cancel rs" in caught.value.next_command


def test_train_that_is_interrupted_early_names_its_whole_command(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job.folder / "keras.py").touch()
    orch.up(job.profile, folder=job.folder)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for moment in ("orchestrator.session.project.Project.lease", "orchestrator.training.one_run.prepared"):
        with monkeypatch.context() as patched:
            patched.setattr(moment, interrupted)
            with pytest.raises(BeforeTheRun) as caught:
                orch.train(run_id="c1", folder=job.folder, local_parity=True, parallel=True)
        assert str(caught.value) == "orch train --run-id c1 --local-parity --parallel"


def wait_until_ended(job: Job) -> None:
    while any(run["state"] in ("started", "running") for run in job.lease(ask=True).runs):
        pass


def test_logs_that_see_the_end_name_what_brings_the_results(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    orch.up(job.profile, folder=job.folder)
    orch.train(run_id="rs", folder=job.folder, detach=True)
    assert [(run.reason, run.active) for run in orch.history(folder=job.folder).runs] == [(None, True)]
    monkeypatch.chdir(job.folder)
    job.go.touch()
    followed = CliRunner().invoke(app, ["logs", "-f"])
    assert followed.exit_code == 0
    assert followed.stderr.endswith("rs ended: completed\nNext: orch pull rs\n")
    assert [(run.reason, run.active) for run in orch.history().runs] == [("completed", False)]
    orch.pull("rs")
    assert "Next" not in CliRunner().invoke(app, ["logs", "-f", "rs"]).stderr


def test_logs_of_a_run_of_orch_run_name_the_command_that_also_deletes_its_machine(job: Job) -> None:
    orch.run(job.profile, run_id="rs", folder=job.folder, detach=True)
    job.go.touch()
    ended = logs("rs", follow=True, folder=job.folder, output=lambda _: None)
    assert str(ended["next_command"]).startswith("orch watch rs ")


def test_a_machine_on_this_computer_is_asked_whether_its_run_has_ended(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    orch.up(job.profile, folder=job.folder)
    orch.train(run_id="rs", folder=job.folder, detach=True)
    job.go.touch()
    assert orch.history(folder=job.folder).runs[0].active, "a cloud is not asked"
    monkeypatch.setattr(clouds, "is_here", lambda name: name == "memory")
    while orch.history(folder=job.folder).runs[0].active:
        pass
    assert orch.history(folder=job.folder).runs[0].reason == "completed"


def test_down_says_which_run_is_active_and_which_ended(job: Job) -> None:
    orch.up(job.profile, folder=job.folder)
    orch.train(run_id="one", folder=job.folder, detach=True)
    orch.train(run_id="two", folder=job.folder, detach=True, parallel=True)
    with pytest.raises(orch.Busy) as refused:
        orch.down(folder=job.folder)
    assert refused.value.message == (
        "one, two are running on the machine; deleting it would end what runs there, and lose its results."
    )
    assert str(refused.value.next_command).startswith("orch watch one    # or, to lose them: orch down ")
    job.go.touch()
    wait_until_ended(job)
    with pytest.raises(orch.Busy) as refused:
        orch.down(folder=job.folder)
    assert refused.value.message.startswith("Results of one, two are on the machine only;")
    assert str(refused.value.next_command).startswith("orch pull --all --lease ")


def test_a_new_run_names_those_that_ended_and_were_not_pulled(job: Job) -> None:
    orch.up(job.profile, folder=job.folder)
    orch.train(run_id="one", folder=job.folder, detach=True)
    with pytest.raises(orch.Busy) as refused:
        orch.train(run_id="two", folder=job.folder)
    assert str(refused.value.next_command).startswith("orch watch one ")
    job.go.touch()
    wait_until_ended(job)
    told = Said()
    assert orch.train(run_id="two", folder=job.folder, progress=told).succeeded
    assert told.about("not pulled") == ["one ended and was not pulled yet: orch pull one"]


def test_an_error_while_the_machine_runs_names_it_and_its_price(job: Job) -> None:
    job.go.touch()
    profile = job.folder / "orch.yaml"
    profile.write_text(profile.read_text().replace("train:\n", "train:\n  outputs: [nowhere]\n"))
    orch.up(job.profile, folder=job.folder)
    with pytest.raises(orch.ResultsLost) as refused:
        orch.train(run_id="one", folder=job.folder)
    assert f"{job.lease().machine} is still running, at $0.05/h." in str(refused.value.exists)


def test_down_sees_that_a_run_has_ended_since(job: Job) -> None:
    """Nobody followed the run to its end, so the ledger does not know of it."""
    job.go.touch()
    orch.up(job.profile, folder=job.folder)
    orch.train(run_id="one", folder=job.folder, detach=True)
    for _ in range(100):
        with pytest.raises(orch.Busy) as refused:
            orch.down(folder=job.folder)
        if not refused.value.message.startswith("one is running"):
            break
    assert refused.value.message.startswith("Results of one are on the machine only;")


@pytest.mark.parametrize("follow", [True, False])
def test_logs_show_a_run_whose_end_cannot_be_recorded_here(
    job: Job, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    """A full disk or a folder that may only be read: the output and how it ended are shown all the same."""
    orch.up(job.profile, folder=job.folder)
    orch.train(run_id="one", folder=job.folder, detach=True)
    job.go.touch()
    while job.cloud.alive() and not list(job.cloud.root.glob("*/runs/one/exit.json")):
        time.sleep(0.05)
    seen: list[bytes] = []

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "record", full)
        told = logs("one", follow=follow, folder=job.folder, output=seen.append)
    assert b"begun" in b"".join(seen) and told["reason"] == "completed"
