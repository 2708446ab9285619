"""Run ids and `orch run` from the command line, by processes that know nothing of each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.model import LABEL_LEASE, Machine
from orchestrator.providers import open_provider
from tests.e2e.project import Project, tiny

pytestmark = pytest.mark.machine

UNIQUE = "import time, uuid\nprint('begun', flush=True)\ntime.sleep(0.5)\nprint(uuid.uuid4())\n"
WAITS = "import time\nprint('begun', flush=True)\ntime.sleep(100)\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, machines: Path) -> Iterator[Project]:
    made = tiny(tmp_path_factory.mktemp("ids"), machines, UNIQUE)
    made.orch("up", "orch.yaml")
    yield made
    made.orch("down", "--discard")


def machines_of(project: Project, lease: str) -> list[Machine]:
    return list(open_provider("local", state=project.state).list({LABEL_LEASE: lease}))


def test_pairs_of_calls_with_one_run_id_give_one_record(shared: Project) -> None:
    for number in range(4):
        pair = [shared.start("train", "--json", "--run-id", f"pair-{number}") for _ in range(2)]
        said = [each.communicate(timeout=100) for each in pair]
        assert [each.returncode for each in pair] == [0, 0], said
        first, second = (json.loads(out) for out, _ in said)
        assert sorted((first.pop("started"), second.pop("started"))) == [False, True], "one call started it"
        assert first == second
        assert len(first["attempts"]) == 1
        assert (shared.folder / f"runs/pair-{number}/output.log").read_text().count("-") == 4, "it ran once"


def test_a_log_inside_the_project_is_no_change_of_its_code(shared: Project) -> None:
    """As a crontab has it: the output of each call goes to the same file, which nobody ignores."""
    for started in (True, False):
        with open(shared.folder / "nightly.log", "ab") as log:
            command = [sys.executable, "-m", "orchestrator", "train", "--json", "--run-id", "logged"]
            subprocess.run(command, cwd=shared.folder, env=shared.env(), stdout=log, stderr=log, check=True)
        text = (shared.folder / "nightly.log").read_text()
        assert json.JSONDecoder().raw_decode(text[text.rindex('{\n "schema"') :])[0]["started"] is started


def test_the_second_goes_on_where_the_first_was_killed(shared: Project) -> None:
    first = shared.start("train", "--run-id", "orphaned")
    assert first.stdout is not None
    while b"begun" not in (line := first.stdout.readline()):
        assert line, first.communicate()
    second = shared.start("train", "--json", "--run-id", "orphaned")
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    out, err = second.communicate(timeout=100)
    assert second.returncode == 0, err.decode()
    assert json.loads(out)["exit"]["reason"] == "completed"


def test_a_cancelled_run_and_lost_results_have_their_own_exit_codes(shared: Project) -> None:
    (shared.folder / "train.py").write_text(WAITS)
    following = shared.start("train", "--run-id", "cancelled")
    assert following.stdout is not None
    while b"begun" not in (line := following.stdout.readline()):
        assert line, following.communicate()
    shared.orch("cancel", "cancelled")
    following.communicate(timeout=60)
    assert following.returncode == 13
    assert shared.json("pull", "cancelled", code=13)["exit"]["reason"] == "cancelled"
    shared.json("train", "--detach", "--run-id", "unfetched")
    shared.orch("cancel", "unfetched")  # its end is known here, its results are not
    lease = shared.json("status")["leases"][0]["lease"]
    (machine,) = machines_of(shared, lease)
    open_provider("local", state=shared.state).kill(machine)  # type: ignore[attr-defined]
    answer = shared.json("train", "--run-id", "unfetched", code=14)
    assert answer["error"]["kind"] == "ResultsLost"
    assert answer["run"]["exit"]["reason"] == "results_lost"


def test_run_fails_is_tried_again_and_leaves_no_machine(project: Project) -> None:
    (project.folder / "train.py").write_text("raise SystemExit(3)\n")
    failed = project.json("run", "orch.yaml", "--run-id", "nightly", code=6)
    assert failed["error"]["exists"].startswith("The machine was deleted; nothing costs money any more.")
    assert failed["error"]["next_command"] == "orch run orch.yaml --run-id nightly"
    assert project.json("status")["leases"] == []
    project.json("run", "orch.yaml", "--run-id", "nightly", "--no-retry-failed", code=6)
    (project.folder / "train.py").write_text("print('well')\n")
    done = project.json("run", "orch.yaml", "--run-id", "nightly")
    assert [each["reason"] for each in done["attempts"]] == ["failed", "completed"]
    assert done["attempts"][1]["changed"] == ["the code: train.py changed"]
    assert "2; earlier attempts: failed" in project.orch("run", "orch.yaml", "--run-id", "nightly").out
    (project.folder / "train.py").write_text("print('other')\n")
    refused = project.json("run", "orch.yaml", "--run-id", "nightly", code=2)["error"]
    assert "train.py changed" in refused["message"]
    assert project.json("status")["leases"] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_scheduler_that_stops_run_is_told_what_is_left(project: Project, number: signal.Signals) -> None:
    """And the same call then goes on from there, and ends the machine."""
    (project.folder / "train.py").write_text(WAITS.replace("100", "6"))
    stopped = project.start("run", "orch.yaml", "--run-id", "nightly")
    assert stopped.stdout is not None
    while b"begun" not in (line := stopped.stdout.readline()):
        assert line, stopped.communicate()
    stopped.send_signal(number)
    _, err = stopped.communicate(timeout=100)
    assert stopped.returncode == 130
    assert b"was left running, at $0.00/h: nightly goes on there." in err
    assert b"Next: orch run orch.yaml --run-id nightly    # goes on from here; or: orch watch nightly" in err
    assert err.count(b"Next: ") == 1
    record = project.json("run", "orch.yaml", "--run-id", "nightly")
    assert (record["exit"]["reason"], len(record["attempts"])) == ("completed", 1)
    assert project.json("status")["leases"] == []
