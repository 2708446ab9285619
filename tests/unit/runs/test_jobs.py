"""Runs: real processes, started, followed, ended and lost, on this computer as the host."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.errors import UsageError
from orchestrator.model import Agent, Job, RunState
from orchestrator.runtime.agent import ending
from tests.unit.job_runs import (
    HOST,
    folder,
    python,
    running,
    shell,
    started,
    to_the_end,
    until,
)

pytestmark = pytest.mark.processes

# ---------------------------------------------------------------- how runs end


@pytest.mark.parametrize(
    ("command", "code", "number", "reason"),
    [
        ("exit 0", 0, None, "completed"),
        ("exit 3", 3, None, "failed"),
        ("kill -TERM $$", None, signal.SIGTERM, "signal"),
        ("kill -SEGV $$", None, signal.SIGSEGV, "signal"),
        ("kill -KILL $$", None, signal.SIGKILL, "signal"),
        ("echo 'OSError: [Errno 28] No space left on device'; exit 1", 1, None, "disk_full"),
    ],
)
def test_ends_are_told_apart(
    agent: Agent, command: str, code: int | None, number: int | None, reason: str
) -> None:
    for count in itertools.count():
        kills = ending.kills_now()
        state, _ = to_the_end(agent, shell(command, f"r{count}"))
        if ending.kills_now() == kills:  # else the kernel killed a neighbour meanwhile, which may be told
            break
    assert state.state == "ended" and state.exit
    assert (state.exit.code, state.exit.signal, state.exit.reason) == (code, number, reason)
    assert state.exit.detail.endswith(".")
    assert state.started_at and state.ended_at and state.ended_at >= state.started_at


def test_what_is_printed_is_there_at_once_and_outlives_a_kill(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As scripts print: without a flush. Nobody is connected while it prints."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    jobs.start(HOST, agent, python("import time; print('step', 1); time.sleep(60)"))
    until(lambda: (folder(agent) / "output.log").read_text() == "step 1\n", 20)
    os.kill(started(agent)["job"]["pid"], signal.SIGKILL)
    until(lambda: jobs.state(HOST, agent, "r").state == "ended")
    assert (folder(agent) / "output.log").read_text().startswith("step 1\n")


def test_the_profile_may_have_what_is_printed_buffered(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    code = "import sys; print(sys.stdout.write_through)"
    assert to_the_end(agent, python(code))[1] == b"True\n"
    assert to_the_end(agent, python(code, "q", env={"PYTHONUNBUFFERED": ""}))[1] == b"False\n"


def test_a_command_that_is_not_there(agent: Agent) -> None:
    state, output = to_the_end(agent, Job("r", ("no-such-program",), sys.executable, cwd="/"))
    assert state.exit and (state.exit.code, state.exit.reason) == (127, "failed")
    assert "no-such-program" in state.exit.detail
    assert b"no-such-program" in output


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every folder")
def test_a_folder_of_path_that_may_not_be_read_hides_no_reason(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    env = {"PATH": f"{tmp_path / 'closed'}:{os.environ['PATH']}"}
    state, _ = to_the_end(agent, Job("r", ("no-such-program",), sys.executable, cwd="/", env=env))
    assert state.exit and (state.exit.code, state.exit.reason) == (127, "failed")


def test_stopped_after_the_observed_steps(agent: Agent) -> None:
    code = "import os, pathlib; pathlib.Path(os.environ['ORCH_OBSERVE_DIR'], 'stopped').touch()"
    state, _ = to_the_end(agent, python(code, observe_steps=2, stop_after_observed=True))
    assert state.exit and state.exit.reason == "observed"


@pytest.mark.parametrize(("of_job", "reason"), [(False, "observed"), (True, "failed")])
def test_a_program_that_fails_because_its_training_was_stopped(
    agent: Agent, of_job: bool, reason: str
) -> None:
    """As nbconvert does when the kernel that trains has recorded its steps and is gone."""
    code = f"""
import os, pathlib, subprocess, sys
ended = subprocess.Popen([sys.executable, "-c", ""])
ended.wait()
stopped = os.getpid() if {of_job} else ended.pid
pathlib.Path(os.environ["ORCH_OBSERVE_DIR"], "stopped").write_text(f"2 {{stopped}}\\n")
sys.exit(1)
"""
    state, _ = to_the_end(agent, python(code, observe_steps=2, stop_after_observed=True))
    assert state.exit and (state.exit.reason, state.exit.code) == (reason, 1)


def test_an_unknown_run_is_absent(agent: Agent) -> None:
    assert jobs.state(HOST, agent, "nobody") == RunState("absent")
    with pytest.raises(UsageError, match="no run nobody"):
        jobs.outputs(HOST, agent, "nobody")


@pytest.mark.parametrize("run_id", ["", "../up", "a/b", ".hidden", "a b", "x" * 129])
def test_names_that_are_not_names(agent: Agent, run_id: str) -> None:
    with pytest.raises(UsageError):
        jobs.start(HOST, agent, shell("true", run_id=run_id))
    assert not list(Path(agent.base).glob("runs/*"))


# ---------------------------------------------------------------- once, whatever happens


def test_a_second_start_finds_the_first(agent: Agent, tmp_path: Path) -> None:
    job = shell(f"echo once >> {tmp_path}/ran; until [ -e {tmp_path}/go ]; do sleep 0.05; done")
    first = jobs.start(HOST, agent, job)
    again = jobs.start(HOST, agent, job)
    assert first.state == again.state == "running"
    (tmp_path / "go").touch()
    to_the_end(agent, job)
    assert jobs.start(HOST, agent, job).state == "ended"
    assert (tmp_path / "ran").read_text() == "once\n"


def test_two_starts_race(agent: Agent, tmp_path: Path) -> None:
    job = shell(f"echo once >> {tmp_path}/ran; sleep 0.2")
    seen: list[RunState] = []
    racers = [threading.Thread(target=lambda: seen.append(jobs.start(HOST, agent, job))) for _ in range(6)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    to_the_end(agent, job)
    assert len(seen) == 6 and {state.started_at for state in seen} == {started(agent)["started_at"]}
    assert (tmp_path / "ran").read_text() == "once\n"


def test_no_file_ever_holds_a_variable_of_the_job(agent: Agent) -> None:
    """Not even while it runs; the job has it, and so has a second start that finds it."""
    job = shell("echo $TOKEN | wc -c; sleep 60", env={"TOKEN": "hunter2-canary"})
    jobs.start(HOST, agent, job)
    until(lambda: (folder(agent) / "output.log").read_text() == "15\n")
    assert jobs.start(HOST, agent, job).state == "running"
    files = [path for path in Path(agent.base).rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if b"hunter2-canary" in path.read_bytes()] == []


def test_a_run_that_an_older_release_started_is_found(agent: Agent) -> None:
    """It wrote the job's variables as they are, and knew fewer fields."""
    job = shell("sleep 60", env={"A": "b"})
    jobs.start(HOST, agent, job)
    spec = folder(agent) / "spec.json"
    facts = json.loads(spec.read_text())
    del facts["salt"], facts["awaited"]
    spec.write_text(json.dumps({**facts, "env": {"A": "b"}}))
    assert jobs.start(HOST, agent, job, awaited=True).state == "running"
    with pytest.raises(UsageError, match=r"env \(A\) differ"):
        jobs.start(HOST, agent, shell("sleep 60", env={"A": "c"}))


def test_another_job_under_the_same_id_is_refused(agent: Agent) -> None:
    jobs.start(HOST, agent, shell("true", env={"TOKEN": "hunter2"}))
    with pytest.raises(UsageError, match=r"argv, env \(TOKEN\) differ") as refused:
        jobs.start(HOST, agent, shell("false", env={"TOKEN": "other"}))
    assert "hunter2" not in refused.value.message


def test_a_start_that_died_is_taken_up(agent: Agent, tmp_path: Path) -> None:
    """The spec is there and nobody holds the run: as after a kill between the two."""
    job = shell(f"echo once >> {tmp_path}/ran")
    to_the_end(agent, job)
    spec = (folder(agent) / "spec.json").read_text()
    other = folder(agent, "s")
    other.mkdir()
    (other / "spec.json").write_text(spec.replace('"run_id": "r"', '"run_id": "s"'))
    assert jobs.state(HOST, agent, "s").state == "absent"
    state, _ = to_the_end(agent, replace(job, run_id="s"))
    assert state.exit and state.exit.reason == "completed"
    assert (tmp_path / "ran").read_text() == "once\nonce\n"


def test_start_killed_at_any_moment_runs_the_job_once(agent: Agent, tmp_path: Path) -> None:
    """Kill `start` and all its children ever later, until it gets through; then start again."""
    for delay in range(0, 160, 8):
        job = shell(f"echo ran >> {tmp_path}/{delay}", run_id=f"r{delay}")
        spec = {**json.loads(json.dumps(vars(job))), "outputs": []}
        process = subprocess.Popen(
            agent.argv("start", agent.base), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        assert process.stdin
        process.stdin.write(json.dumps(spec).encode())
        process.stdin.close()
        time.sleep(delay / 1000)
        process.kill()
        process.wait()
        state, _ = to_the_end(agent, job)
        assert state.exit and state.exit.reason == "completed"
        assert (tmp_path / str(delay)).read_text() == "ran\n"


def _no_longer_running(agent: Agent, run_id: str) -> RunState | None:
    state = jobs.state(HOST, agent, run_id)
    return None if state.state == "running" else state


def test_supervisor_killed_at_any_moment_never_runs_the_job_twice(agent: Agent, tmp_path: Path) -> None:
    for delay in range(0, 60, 4):
        job = shell(f"echo ran >> {tmp_path}/{delay}; sleep 0.02", run_id=f"r{delay}")
        jobs.start(HOST, agent, job)
        time.sleep(delay / 1000)
        os.kill(started(agent, job.run_id)["supervisor"]["pid"], signal.SIGKILL)
        state = until(partial(_no_longer_running, agent, job.run_id))
        assert state.exit.reason in ("lost", "completed")
        assert jobs.start(HOST, agent, job) == state
        time.sleep(0.05)
        assert (tmp_path / str(delay)).read_text() == "ran\n"


def test_a_killed_supervisor_is_told_as_lost_and_its_job_can_be_cancelled(agent: Agent) -> None:
    jobs.start(HOST, agent, shell("echo hello; sleep 60 & exec sleep 60"))
    facts = started(agent)
    os.kill(facts["supervisor"]["pid"], signal.SIGKILL)
    state = until(lambda: (s := jobs.state(HOST, agent, "r")).state == "lost" and s)
    assert state.exit.reason == "lost" and "supervisor was killed; the job still runs" in state.exit.detail
    output = bytearray()
    assert jobs.follow(HOST, agent, "r", 0, output.extend) == 6
    assert running(facts["job"]["pid"])
    jobs.cancel(HOST, agent, "r", grace=5)
    until(lambda: not running(facts["job"]["pid"]))
    assert jobs.start(HOST, agent, shell("echo hello; sleep 60 & exec sleep 60")).state == "lost"


def test_another_boot_is_told_as_lost(agent: Agent) -> None:
    to_the_end(agent, shell("true"))
    (folder(agent) / "exit.json").unlink()
    facts = {**started(agent), "boot_id": "another"}
    (folder(agent) / "started.json").write_text(json.dumps(facts))
    state = jobs.state(HOST, agent, "r")
    assert state.state == "lost" and state.exit and "restarted" in state.exit.detail


# ---------------------------------------------------------------- what the job sees


def test_the_environment(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "1")
    monkeypatch.setenv("SSH_CONNECTION", "x")
    monkeypatch.setenv("ORCH_STATE_HOME", "x")
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    _, output = to_the_end(agent, python(code, env={"GIVEN": "ü"}))
    seen = json.loads(output)
    assert seen["INHERITED"] == "1" and seen["GIVEN"] == "ü" and "SSH_CONNECTION" not in seen
    assert {name for name in seen if name.startswith("ORCH_")} == {"ORCH_TRACE"}
    assert seen["ORCH_TRACE"] == str(folder(agent) / "trace.jsonl")
    assert seen["PYTHONPATH"] == f"{agent.root}/orch_runtime/hook{os.pathsep}/theirs"
    assert seen["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert seen["VIRTUAL_ENV"] == str(Path(sys.executable).parent.parent)


def test_observation_is_announced(agent: Agent) -> None:
    code = "import os; print(*sorted(v for v in os.environ if v.startswith('ORCH_')))"
    _, output = to_the_end(agent, python(code, observe_steps=3, stop_after_observed=True))
    assert output.split() == [b"ORCH_OBSERVE_DIR", b"ORCH_OBSERVE_STEPS", b"ORCH_OBSERVE_STOP", b"ORCH_TRACE"]
    assert (folder(agent) / "observe").is_dir()


def test_its_own_session_and_signals_as_a_shell_gives_them(agent: Agent) -> None:
    code = (
        "import os, signal, sys;"
        "print(os.getsid(0) == os.getpid(), sys.stdin.read() == '',"
        "signal.getsignal(signal.SIGHUP) == signal.SIG_DFL, signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    )
    _, output = to_the_end(agent, python(code))
    assert output == b"True True True set()\n"
    _, output = to_the_end(agent, shell("yes | head -1; echo ${PIPESTATUS:-}; trap", run_id="s"))
    assert output.split() == [b"y"]


def test_no_descriptor_of_ours_reaches_the_job(agent: Agent) -> None:
    _, output = to_the_end(agent, shell("ls /proc/self/fd | wc -l"))
    assert int(output) == 4  # 0, 1, 2 and the one that lists them


def test_what_the_job_left_running_is_ended(agent: Agent) -> None:
    state, output = to_the_end(agent, shell("sleep 60 & echo $!; setsid sleep 61 & echo $!"))
    assert not any(running(int(pid)) for pid in output.split())
    assert state.exit and state.exit.reason == "completed" and "left behind" in state.exit.detail


def test_a_look_at_a_run_imports_nothing_of_its_start(agent: Agent) -> None:
    enter = Path(agent.root, "enter.py")
    command = [agent.python, "-I", "-X", "importtime", enter, "state", agent.base, "r"]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "orch_runtime.rundir" in imported
    for late in ("agent.supervise", "transfer.stage", "sampler", "urllib.request", "subprocess"):
        assert late not in imported
