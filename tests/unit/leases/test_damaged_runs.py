"""Runs whose line in the ledger is damaged: their machine tells which it has, and nothing forgets them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import orchestrator as orch
from orchestrator import jobs
from orchestrator.api.pulling import fetch, pull_all
from orchestrator.cli.app import app
from orchestrator.errors import HostError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Completed
from orchestrator.report.lease import status_text
from orchestrator.session import connect
from orchestrator.session.project import Project
from tests.unit import here_cloud
from tests.unit.here_cloud import HereCloud

pytestmark = pytest.mark.processes

LASTS = "import time\nprint('begun', flush=True)\ntime.sleep(120)\n"
EXIT = '{"code": 0, "detail": "\\"reason\\": \\"no\\"", "reason": "completed"}'
QUICK = "open('result.txt', 'w').write('42')\n"


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HereCloud:
    return here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)


def leased(folder: Path, script: str) -> None:
    orch.up(here_cloud.project(folder, script), folder=folder)


def damage(folder: Path, run_id: str) -> None:
    """Spoil the line that tells the start of the run."""
    (ledger,) = Project(folder).ledgers()
    spoil_last_start(ledger.path, f'"run_id": "{run_id}"'.encode())
    assert run_id not in ledger.lease().runs


def spoil_last_start(path: Path, mark: bytes) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    at = [n for n, line in enumerate(lines) if b'"run.started"' in line and mark in line][-1]
    lines[at] = b"#" + lines[at][1:]
    path.write_bytes(b"".join(lines))


def until_ended(cloud: HereCloud, run_id: str) -> None:
    (machine,) = cloud.alive()
    while not (cloud.base(machine.id) / "runs" / run_id / "exit.json").exists():
        time.sleep(0.05)


def end(cloud: HereCloud) -> None:
    for machine in cloud.alive():
        cloud.kill(machine)


def test_down_does_not_end_a_run_that_its_ledger_does_not_tell(tmp_path: Path, cloud: HereCloud) -> None:
    folder = tmp_path / "p"
    leased(folder, LASTS)
    orch.train(run_id="one", detach=True, folder=folder)
    damage(folder, "one")
    for everything in (False, True):
        with pytest.raises(orch.OrchError, match="one") as refused:
            orch.down(folder=folder, everything=everything, clouds=("memory",) if everything else ())
        assert len(cloud.alive()) == 1
        assert refused.value.next_command and "orch logs -f one" in refused.value.next_command
    assert orch.down(folder=folder, discard=True).machines
    assert not cloud.alive()


def test_down_refuses_where_the_machine_does_not_tell_which_runs_it_has(
    tmp_path: Path, cloud: HereCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "p"
    leased(folder, LASTS)
    orch.train(run_id="one", detach=True, folder=folder)
    damage(folder, "one")

    def silent(*_: object, **__: object) -> None:
        raise HostError("It does not answer.")

    monkeypatch.setattr(connect, "connect", silent)
    with pytest.raises(orch.OrchError, match="does not report its runs") as refused:
        orch.down(folder=folder)
    assert refused.value.next_command and "--discard" in refused.value.next_command
    with pytest.raises(orch.OrchError, match="damaged"):
        orch.down(folder=folder, everything=True, clouds=("memory",))
    (told,) = orch.status(folder=folder, ask=True)
    assert told.damaged and not told.runs_known
    assert "may have unlisted runs" in status_text([told])
    assert len(cloud.alive()) == 1
    assert orch.down(folder=folder, discard=True).machines
    assert not cloud.alive()


def test_train_is_not_started_beside_a_run_that_the_ledger_does_not_tell(
    tmp_path: Path, cloud: HereCloud
) -> None:
    folder = tmp_path / "p"
    leased(folder, LASTS)
    orch.train(run_id="one", detach=True, folder=folder)
    damage(folder, "one")
    with pytest.raises(orch.OrchError, match=r"one is running on .*Nothing was started"):
        orch.train(run_id="two", folder=folder)
    beside = orch.train(run_id="two", folder=folder, detach=True, parallel=True)
    assert beside.exit["reason"] == "running"
    end(cloud)


@pytest.mark.parametrize("name", [None, "one", "--all"])
def test_pull_fetches_what_the_ledger_does_not_tell(
    tmp_path: Path, cloud: HereCloud, name: str | None
) -> None:
    folder = tmp_path / "p"
    leased(folder, QUICK)
    orch.train(run_id="one", detach=True, folder=folder)
    until_ended(cloud, "one")
    damage(folder, "one")
    pulled = pull_all(folder=folder) if name == "--all" else fetch(name, folder=folder)
    (record,) = pulled.records
    assert record.run_id == "one" and record.succeeded
    assert (record.folder / "outputs" / "result.txt").read_text() == "42"
    assert record.stack is None and record.data is None, "nobody knows with what it was made"
    assert orch.down(folder=folder).proven_gone
    assert not cloud.alive()


def test_a_second_attempt_that_the_ledger_does_not_tell_is_fetched_too(
    tmp_path: Path, cloud: HereCloud
) -> None:
    """The first attempt at its id was collected, and the line of the second one is damaged."""
    folder = tmp_path / "p"
    leased(folder, "raise SystemExit(3)\n")
    with pytest.raises(orch.RunFailed):
        orch.train(run_id="one", folder=folder)
    (folder / "train.py").write_text(QUICK)
    orch.train(run_id="one", detach=True, folder=folder, retry_failed=True)
    until_ended(cloud, "one")
    (ledger,) = Project(folder).ledgers()
    spoil_last_start(ledger.path, b'"run.started"')
    assert not ledger.lease().uncollected
    with pytest.raises(orch.OrchError, match="Results of one"):
        orch.down(folder=folder)
    record = orch.pull("one", folder=folder)
    assert record.succeeded and [each["number"] for each in record.attempts] == [1, 2]
    assert orch.down(folder=folder).proven_gone
    assert not cloud.alive()


def test_status_shows_the_machine_the_damage_and_the_run(
    tmp_path: Path, cloud: HereCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "p"
    leased(folder, LASTS)
    orch.train(run_id="one", detach=True, folder=folder)
    (machine,) = cloud.alive()
    monkeypatch.chdir(folder)
    whole = CliRunner().invoke(app, ["status", "--live"]).stdout
    assert machine.id in whole and "damaged" not in whole
    damage(folder, "one")
    text = CliRunner().invoke(app, ["status"]).stdout
    assert "damaged" in text and "was not asked" in text
    text = CliRunner().invoke(app, ["status", "--live"]).stdout
    assert machine.id in text and "damaged" in text
    assert ["one", "running"] in [line.split()[:2] for line in text.splitlines()]
    (told,) = json.loads(CliRunner().invoke(app, ["status", "--live", "--json"]).stdout)["leases"]
    assert told["machine"] == machine.id
    assert told["damaged"] and told["runs_known"]
    end(cloud)


def test_gc_keeps_a_machine_whose_ledger_does_not_tell_its_runs(tmp_path: Path, cloud: HereCloud) -> None:
    from datetime import UTC, datetime, timedelta

    from orchestrator.leases.gc import gc

    folder = tmp_path / "p"
    leased(folder, LASTS)
    orch.train(run_id="one", detach=True, folder=folder)
    damage(folder, "one")
    later = datetime.now(UTC) + timedelta(hours=3)
    report = gc(("memory",), folder=folder, now=later, opened=lambda _: cloud)
    assert [one.outcome for one in report.machines] == ["kept"]
    assert "damaged" in report.machines[0].reason
    end(cloud)


def test_the_list_of_runs_that_wait_is_of_what_can_be_one(tmp_path: Path) -> None:
    """Whatever lies in the folder of runs; a list without its end is none, so that no run is hidden by it."""

    def run(name: str, spec: str, *marks: str) -> Path:
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "spec.json").write_text(spec)
        for mark in marks:
            (folder / mark).write_text(EXIT)
        return folder

    assert jobs.waiting(HereHost(), str(tmp_path)) == ()
    run("goes-on", '{"awaited": true}', "started.json")
    run("ended", '{"awaited": true}', "started.json", "exit.json")
    run("fetched", '{"awaited": true}', "started.json", "exit.json", "collected")
    run("not-begun", '{"awaited": true}')
    run("recording", '{"awaited": false, "argv": ["\\"awaited\\": true"]}', "started.json")
    run("two\nlines -", '{"awaited": true}', "started.json")
    os.mkfifo(run("pipe", "", "started.json") / "fifo")
    (tmp_path / "runs" / "pipe" / "spec.json").unlink()
    (tmp_path / "runs" / "pipe" / "fifo").rename(tmp_path / "runs" / "pipe" / "spec.json")
    found = {one.run_id: one.reason for one in jobs.waiting(HereHost(), str(tmp_path))}
    assert found == {"goes-on": None, "ended": "completed"}


@pytest.mark.parametrize("said", [b"", b"hello\n", b"one \n", b"\xff\x00" * 1000, b". \n"])
def test_a_list_of_runs_without_its_end_is_refused(said: bytes) -> None:
    class Lying(HereHost):
        def run(self, *_: Any, **__: Any) -> Completed:
            return Completed(("sh",), 0, said, b"")

    with pytest.raises(HostError, match="its list has no end"):
        jobs.waiting(Lying(), "base")
