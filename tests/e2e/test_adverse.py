"""What goes wrong with a run, each told apart, with nothing lost and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from subprocess import Popen

import pytest

from orchestrator.model import LABEL_LEASE, Machine
from orchestrator.providers import open_provider
from tests.e2e import interrupted
from tests.e2e.project import Project, until

pytestmark = pytest.mark.machine

COUNT = """
import sys, time
for n in range(%d):
    print("line", n, flush=True)
    time.sleep(0.1)
open("done.txt", "w").write("done")
"""


def write(project: Project, script: str) -> None:
    (project.folder / "train.py").write_text(script)


def machine(project: Project) -> Machine:
    lease = project.json("status")["leases"][0]["lease"]
    (found,) = open_provider("local", state=project.state).list({LABEL_LEASE: lease})
    return found


def wait_for_line(process: Popen[bytes], text: bytes) -> bytes:
    seen = b""
    assert process.stdout
    while text not in seen:
        line = process.stdout.readline()
        assert line, f"ended before {text!r}: {seen!r} {process.stderr.read() if process.stderr else b''!r}"
        seen += line
    return seen


def test_up_train_down_leaves_results_and_no_machine(project: Project) -> None:
    write(project, "import pathlib; pathlib.Path('a b').mkdir(); pathlib.Path('a b/ü.txt').write_text('x')")
    up = project.json("up", "orch.yaml")
    assert up["state"] == "running"
    record = project.json("train", "--run-id", "one")
    assert [a["path"] for a in record["artifacts"]] == ["outputs/a b/ü.txt"]
    down = project.json("down")
    assert down["proven_gone"] is True
    assert down["machines"] == [up["machine"]]
    assert project.json("status")["leases"] == []
    assert open_provider("local", state=project.state).list({LABEL_LEASE: up["lease"]}) == []
    assert (project.folder / "runs/one/outputs/a b/ü.txt").read_text() == "x"


def test_down_refuses_to_lose_results(project: Project) -> None:
    project.orch("up", "orch.yaml")
    project.json("train", "--detach", "--run-id", "kept")
    error = project.json("down", code=15)["error"]
    assert "kept" in error["message"]
    assert project.json("status")["leases"][0]["state"] == "running"


def test_a_killed_client_is_no_end_and_the_run_id_finds_it(project: Project) -> None:
    write(project, COUNT % 40)
    project.orch("up", "orch.yaml")
    train = project.start("train", "--run-id", "nightly")
    wait_for_line(train, b"line 2\n")
    os.killpg(train.pid, signal.SIGKILL)
    train.wait()
    assert state_of_the_run(project) == "running"
    record = project.json("train", "--run-id", "nightly")
    assert record["exit"]["reason"] == "completed"
    assert (project.folder / "runs/nightly/output.log").read_text().count("line 0\n") == 1


def state_of_the_run(project: Project) -> str:
    return str(project.json("status")["leases"][0]["runs"][0]["state"])


def test_status_asks_the_machine_how_a_run_ended_that_nobody_followed(project: Project) -> None:
    write(project, "raise SystemExit(3)")
    project.orch("up", "orch.yaml")
    project.json("train", "--detach", "--run-id", "alone")
    until(lambda: state_of_the_run(project) == "failed", 30)


def test_what_the_machine_is_cannot_be_changed_by_train(project: Project) -> None:
    write(project, "print('unchanged')")
    project.orch("up", "orch.yaml")
    refused = project.orch("train", "--set", "resources.cpus=2", code=2)
    assert "cannot change resources" in refused.err


def test_cancel_ends_the_run_and_keeps_what_it_wrote(project: Project) -> None:
    write(project, "open('half.txt', 'w').write('half')\n" + COUNT % 3000)
    project.orch("up", "orch.yaml")
    project.json("train", "--detach", "--run-id", "gone")
    assert project.json("cancel")["reason"] == "cancelled"
    assert project.json("pull", code=13)["exit"]["reason"] == "cancelled"
    assert (project.folder / "runs/gone/outputs/half.txt").read_text() == "half"


@pytest.mark.parametrize(
    ("script", "expected", "code"),
    [
        ("import sys; sys.exit(3)", {"reason": "failed", "code": 3}, 6),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", {"reason": "signal", "signal": 11}, 6),
        ("b = [bytearray(b'x' * (1 << 20)) for _ in range(4000)]", {"reason": "out_of_memory"}, 10),
        (
            "f = open('big', 'wb')\nwhile True:\n    f.write(b'x' * (1 << 20))\n    f.flush()",
            {"reason": "disk_full"},
            18,
        ),
    ],
    ids=["exit code", "signal", "out of memory", "disk full"],
)
def test_ends_are_told_apart(
    shared: Project, script: str, expected: dict[str, object], code: int, request: pytest.FixtureRequest
) -> None:
    write(shared, script)
    name = request.node.callspec.id.replace(" ", "-")
    answer = shared.json("train", "--run-id", name, "--set", "train.outputs=[none]", code=code)
    assert {key: answer["run"]["exit"][key] for key in expected} == expected
    assert answer["error"]["next_command"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, machines: Path):  # type: ignore[no-untyped-def]
    from tests.e2e.project import tiny

    made = tiny(tmp_path_factory.mktemp("shared"), machines, "", memory="512 MiB", disk="600 MiB")
    made.orch("up", "orch.yaml")
    yield made
    made.orch("down", "--discard")


def test_a_machine_killed_during_training_is_a_lost_run(project: Project) -> None:
    write(project, COUNT % 3000)
    project.orch("up", "orch.yaml")
    train = project.start("train", "--run-id", "doomed", "--json")
    found = machine(project)
    assert train.stderr
    while b"line 3" not in train.stderr.readline():
        pass
    open_provider("local", state=project.state).kill(found)  # type: ignore[attr-defined]
    out, err = train.communicate(timeout=100)
    assert train.returncode == 12, err.decode()
    assert b'"reason": "lost"' in out
    shown = [line for line in err.decode().splitlines() if line.startswith("line")]
    kept = (project.folder / "runs/doomed/output.log").read_text()
    assert kept.startswith("line 0\nline 1\nline 2\nline 3\n") and all(line in kept for line in shown)
    assert project.orch("logs", "doomed").out == kept
    assert project.json("down")["proven_gone"] is True


def test_an_idle_machine_waits_for_whoever_fetches_its_results(project: Project) -> None:
    """The run was detached, and is over for longer than `idle_duration`."""
    write(project, "print('unread'); open('weights.bin', 'w').write('w')")
    project.orch("up", "orch.yaml")
    project.orch("train", "--detach", "--run-id", "left")
    project.orch("up", "orch.yaml", "--set", "idle_duration=10s")
    provider = open_provider("local", state=project.state)
    labels = {LABEL_LEASE: project.json("status")["leases"][0]["lease"]}
    time.sleep(16)
    assert provider.list(labels), "it took the results with it"
    project.orch("pull", "left")
    assert (project.folder / "runs/left/outputs/weights.bin").read_text() == "w"
    until(lambda: not provider.list(labels), 40)


def test_the_deadline_saves_what_a_follower_can_fetch(project: Project) -> None:
    """The job is asked to end a while before, writes its checkpoint, and that comes home in time."""
    write(
        project,
        "import signal, sys, time\n"
        "def save(*_):\n    open('checkpoint', 'w').write('step 7')\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\nprint('training')\ntime.sleep(600)\n",
    )
    project.orch("up", "orch.yaml")
    train = project.start("train", "--run-id", "long")
    wait_for_line(train, b"training\n")
    sooner = (
        "import json; p = '/opt/orch/deadline.json'; d = json.load(open(p)); d['boottime'] -= 1700; "
        "json.dump(d, open(p, 'w'))"
    )
    project.orch("ssh", "--", "python3", "-c", sooner)
    out, err = train.communicate(timeout=100)
    assert train.returncode == 19 and b"deadline" in out + err, err.decode()
    assert (project.folder / "runs/long/outputs/checkpoint").read_text() == "step 7"
    project.orch("down")


def test_a_broken_connection_is_made_again_and_no_byte_is_lost(project: Project) -> None:
    write(project, COUNT % 60)
    project.orch("up", "orch.yaml")
    train = project.start("train", "--run-id", "cut")
    wait_for_line(train, b"line 3\n")
    cut = "for p in $(pgrep -f 'sshd: root'); do kill -9 $p; done"
    project.start("ssh", "--", "sh", "-c", cut).communicate(timeout=30)
    _, err = train.communicate(timeout=60)
    assert train.returncode == 0, err.decode()
    log = (project.folder / "runs/cut/output.log").read_text()
    assert log.count("line ") == 60


def shown_key(project: Project) -> bytes:
    """The key that the machine's sshd shows now; empty while it does not answer."""
    endpoint = open_provider("local", state=project.state).endpoint(machine(project))
    assert endpoint
    scan = ["ssh-keyscan", "-t", "ed25519", "-p", str(endpoint.port), endpoint.address]
    return subprocess.run(scan, capture_output=True, check=False).stdout


def test_a_machine_with_another_host_key_is_refused(project: Project) -> None:
    project.orch("up", "orch.yaml")
    key = "/etc/ssh/ssh_host_ed25519_key"
    swap = f"rm {key}; ssh-keygen -q -t ed25519 -N '' -f {key}; kill -HUP $(cat /run/sshd.pid)"
    known = shown_key(project)
    project.orch("ssh", "--", "sh", "-c", swap)
    until(lambda: shown_key(project) not in (known, b""), 60)
    error = project.json("train", code=8)["error"]
    assert error["kind"] == "HostKeyError"
    assert "SHA256:" in error["message"]


def test_a_profile_that_is_wrong_is_refused_before_anything_happens(project: Project) -> None:
    (project.folder / "bad.yaml").write_text("version: 1\nname: x\ncloud: local\nresources:\n  memroy: 4\n")
    error = project.json("up", "bad.yaml", code=2)["error"]
    assert "bad.yaml:5:3" in error["message"]
    assert "memory" in error["message"]
    assert project.json("status")["leases"] == []


def test_two_ups_at_once_make_one_machine(project: Project) -> None:
    both = [project.start("up", "orch.yaml", "--json") for _ in range(2)]
    for each in both:
        _, err = each.communicate(timeout=120)
        assert each.returncode == 0, err.decode()
    assert len(project.json("status")["leases"]) == 1
    machine(project)


@pytest.mark.parametrize("after", ["create.intent", "create.accepted"])
def test_up_killed_on_the_way_and_repeated_makes_one_machine(project: Project, after: str) -> None:
    up = project.start("up", "orch.yaml")
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        journals = list(project.folder.glob(".orch/*/ledger.jsonl"))
        if journals and f'"{after}"' in journals[0].read_text():
            break
        time.sleep(0.002)
    os.killpg(up.pid, signal.SIGKILL)
    up.wait()
    project.orch("up", "orch.yaml")
    machine(project)
    assert len(project.json("status")["leases"]) == 1


def test_down_after_up_was_killed_leaves_nothing(project: Project) -> None:
    up = project.start("up", "orch.yaml")
    limit = time.monotonic() + 60
    while time.monotonic() < limit and not list(project.folder.glob(".orch/*/ledger.jsonl")):
        time.sleep(0.005)
    time.sleep(0.15)
    os.killpg(up.pid, signal.SIGKILL)
    up.wait()
    lease = project.json("status")["leases"][0]["lease"]
    assert project.json("down")["proven_gone"] is True
    assert open_provider("local", state=project.state).list({LABEL_LEASE: lease}) == []


def test_data_appear_where_the_script_expects_them(project: Project, tmp_path: Path) -> None:
    """A file from anywhere here, at an absolute path there; and one file as data. None can be written."""
    elsewhere = tmp_path / "some where"
    elsewhere.mkdir()
    (elsewhere / "images ü.csv").write_text("1,2\n")
    (elsewhere / "one.txt").write_text("one")
    write(
        project,
        "import pathlib\n"
        "assert pathlib.Path('/data/training/images ü.csv').read_text() == '1,2\\n'\n"
        "assert pathlib.Path('in/one.txt').read_text() == 'one'\n"
        "for name in ('/data/training/images ü.csv', 'in/one.txt'):\n"
        "    try:\n"
        "        open(name, 'a')\n"
        "    except PermissionError:\n"
        "        continue\n"
        "    raise SystemExit(f'{name} can be written')\n",
    )
    with open(project.folder / "orch.yaml", "a") as profile:
        profile.write(f"data:\n  - {{source: '{elsewhere}', target: /data/training}}\n")
        profile.write(f"  - {{source: '{elsewhere}/one.txt', target: in/one.txt}}\n")
    project.orch("up", "orch.yaml")
    assert project.json("train")["data"]["files"] == 3


def test_a_machine_that_nobody_uses_ends_itself(project: Project) -> None:
    project.orch("up", "orch.yaml", "--set", "idle_duration=10s")
    lease = project.json("status")["leases"][0]["lease"]
    provider = open_provider("local", state=project.state)
    limit = time.monotonic() + 60
    while provider.list({LABEL_LEASE: lease}):
        assert time.monotonic() < limit, "it runs on"
        time.sleep(0.2)
    assert project.json("status")["leases"][0]["state"] == "gone"
    assert project.json("train", code=8)["error"]["next_command"].startswith("orch down")


def test_a_result_that_equals_an_earlier_one_comes_home(project: Project) -> None:
    """What a run here left in the project is sent as code; the run there writes the same bytes."""
    write(project, "open('metrics.json', 'w').write('{\"accuracy\": 0.5}')")
    (project.folder / "metrics.json").write_text('{"accuracy": 0.5}')
    project.orch("up", "orch.yaml")
    record = project.json("train")
    assert record["metrics"] == {"accuracy": 0.5}
    assert [artifact["path"] for artifact in record["artifacts"]] == ["outputs/metrics.json"]


def test_down_in_another_folder_names_what_runs(project: Project, tmp_path: Path) -> None:
    project.state = tmp_path / "own"  # `--all` is not to meet the machines of other tests
    project.orch("up", "orch.yaml")
    (tmp_path / "other").mkdir()
    other = Project(tmp_path / "other", project.state)
    found = other.json("down")["elsewhere"]
    assert machine(project).id in found
    assert machine(project).id in other.orch("status").out
    refused = other.orch("down", "--all", code=2)  # nobody can be asked
    assert machine(project).id in refused.err
    assert "orch down --all --yes" in refused.err
    stranger = Project(tmp_path / "other", project.state, {"ORCH_STATE_HOME": str(tmp_path / "another home")})
    assert stranger.json("down", "--all", "--yes")["machines"] == []
    assert project.json("status")["leases"][0]["state"] == "running"


def test_a_run_whose_machines_are_killed_is_the_run_that_was_not_though_its_caller_died(
    project: Project,
) -> None:
    """Two machines lose their power, and the first caller dies with the first of them."""
    interrupted.write(project, times=2)

    def kill() -> None:
        open_provider("local", state=project.state).kill(machine(project))  # type: ignore[attr-defined]

    caller = interrupted.begin(project)
    interrupted.take_at(project, caller, 3, kill)
    interrupted.vanish(caller)
    caller = interrupted.begin(project)
    interrupted.take_at(project, caller, 6, kill)
    interrupted.require_one_run(project, caller, "lost", times=2)
