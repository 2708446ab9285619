"""The output of runs is followed without loss, and runs are cancelled with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.errors import HostError
from orchestrator.model import Agent
from tests.unit.job_runs import (
    HOST,
    environ_of,
    folder,
    python,
    shell,
    to_the_end,
    until,
)

pytestmark = pytest.mark.processes


def test_cancel_asks_first(agent: Agent) -> None:
    jobs.start(HOST, agent, shell("trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    until(lambda: (folder(agent) / "output.log").read_bytes())
    state = jobs.cancel(HOST, agent, "r")
    assert state.state == "ended" and state.exit
    assert (state.exit.code, state.exit.reason) == (0, "cancelled")
    assert (folder(agent) / "output.log").read_bytes().endswith(b"saved\n")
    assert jobs.cancel(HOST, agent, "r") == state


def test_cancel_ends_what_will_not_listen_with_all_its_children(agent: Agent) -> None:
    deaf = "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep 60\") & echo $!; while :; do sleep 0.05; done"
    jobs.start(HOST, agent, shell(deaf))
    until(lambda: (folder(agent) / "output.log").read_bytes())
    state = jobs.cancel(HOST, agent, "r", grace=0.3)
    assert state.exit and (state.exit.signal, state.exit.reason) == (signal.SIGKILL, "cancelled")
    marked = f"ORCH_TRACE={folder(agent)}/trace.jsonl".encode()
    environments = [environ_of(path) for path in Path("/proc").glob("[0-9]*/environ")]
    assert not any(marked in environment for environment in environments)


def test_cancelling_what_ended_changes_nothing(agent: Agent) -> None:
    state, _ = to_the_end(agent, shell("exit 4"))
    assert jobs.cancel(HOST, agent, "r") == state


def test_follow_across_reconnects_gives_every_byte_once(agent: Agent) -> None:
    """The tail is killed again and again while the job prints; each time we go on where we were."""
    code = (
        "import sys, time\n"
        "for i in range(300):\n"
        "    sys.stdout.buffer.write(bytes(range(256)) + b'%d' % i); sys.stdout.flush(); time.sleep(0.005)"
    )
    jobs.start(HOST, agent, python(code))
    output, broken = bytearray(), 0
    while True:
        killer = threading.Timer(0.25, _kill_tails, [agent])
        killer.start()
        try:
            jobs.follow(HOST, agent, "r", len(output), output.extend)
            break
        except jobs.FollowInterrupted as lost:
            assert isinstance(lost, HostError) and lost.offset == len(output)
            broken += 1
        finally:
            killer.cancel()
    assert broken >= 2
    assert bytes(output) == b"".join(bytes(range(256)) + b"%d" % i for i in range(300))


def _kill_tails(agent: Agent) -> None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = environ_of(path).split(b"\0")
        if b"tail" in words and agent.base.encode() in words:
            os.kill(int(path.parent.name), signal.SIGKILL)


def test_a_tail_that_nobody_reads_ends(agent: Agent) -> None:
    jobs.start(HOST, agent, shell("sleep 60"))
    with subprocess.Popen(
        agent.argv("tail", agent.base, "r", "0", "--follow"), stdout=subprocess.PIPE
    ) as tail:
        time.sleep(0.3)
        assert tail.poll() is None and tail.stdout
        tail.stdout.close()
        assert until(lambda: tail.poll() is not None)
    jobs.cancel(HOST, agent, "r", 0)


def test_output_so_far(agent: Agent) -> None:
    jobs.start(HOST, agent, shell("echo one; echo two >&2; sleep 60"))
    until(lambda: jobs.state(HOST, agent, "r").log_bytes == 8)
    output = bytearray()
    assert jobs.follow(HOST, agent, "r", 4, output.extend, live=False) == 8
    assert output == b"two\n"
    jobs.cancel(HOST, agent, "r", 0)


def test_output_that_became_shorter_is_noticed(agent: Agent) -> None:
    to_the_end(agent, shell("echo hello"))
    (folder(agent) / "output.log").write_bytes(b"he")
    with pytest.raises(jobs.OutputShrank, match="requested offset 6"):
        jobs.follow(HOST, agent, "r", 6, lambda _: None)
