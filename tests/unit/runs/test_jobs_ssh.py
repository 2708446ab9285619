"""Runs over a real connection: what is detached outlives it, and the reader goes on where it was."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.errors import HostError
from orchestrator.model import Agent, Job
from orchestrator.stack.runtime_files import lay_out
from tests.conformance import private_sshd
from tests.conformance.private_sshd import over_ssh

pytestmark = pytest.mark.processes


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    base = tmp_path / "base"
    base.mkdir()
    return Agent(sys.executable, str(lay_out(base)), str(base))


COUNT = "import time\nfor i in range(100): print(i, flush=True); time.sleep(0.02)"


def test_a_run_outlives_its_connection_and_is_read_on(
    server: private_sshd.Sshd, agent: Agent, tmp_path: Path
) -> None:
    job = Job("r", ("python", "-c", COUNT), sys.executable, cwd="/", env={"GREETING": "it's ü"})
    host = over_ssh(server, tmp_path)
    assert jobs.start(host, agent, job).state == "running"
    output = bytearray()

    def show(data: bytes) -> None:
        if not output:
            threading.Timer(0.1, host.close).start()
        output.extend(data)

    with pytest.raises(HostError) as lost:
        jobs.follow(host, agent, "r", 0, show)
    assert isinstance(lost.value, jobs.FollowInterrupted)
    assert 0 < lost.value.offset == len(output) < 290
    again = over_ssh(server, tmp_path)
    assert jobs.start(again, agent, job).state == "running"
    assert jobs.follow(again, agent, "r", len(output), output.extend) == 290
    assert bytes(output) == b"".join(b"%d\n" % i for i in range(100))
    ended = jobs.state(again, agent, "r")
    assert ended.exit and ended.exit.reason == "completed"
    again.close()


def test_cancel_and_outputs_over_ssh(server: private_sshd.Sshd, agent: Agent, tmp_path: Path) -> None:
    host = over_ssh(server, tmp_path)
    jobs.start(host, agent, Job("r", ("sleep", "60"), sys.executable, cwd="/"))
    ended = jobs.cancel(host, agent, "r", grace=5)
    assert ended.exit and (ended.exit.signal, ended.exit.reason) == (15, "cancelled")
    assert jobs.outputs(host, agent, "r") == ()
    host.close()
