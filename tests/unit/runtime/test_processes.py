"""A process is one number and one start: signals never reach a process that reuses the number."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest

from orchestrator.runtime import processes

pytestmark = pytest.mark.processes


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a session of its own."""
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_the_session_of_a_run_has_its_members(sleeper: subprocess.Popen[bytes]) -> None:
    began = processes.start_of(sleeper.pid)
    assert processes.members(sleeper.pid, began, "no-marker") == [sleeper.pid]


def test_a_later_session_with_the_same_number_is_another(sleeper: subprocess.Popen[bytes]) -> None:
    began = processes.start_of(sleeper.pid)
    assert began is not None
    assert processes.members(sleeper.pid, began - 1, "no-marker") == []


def test_a_process_that_reuses_a_number_gets_no_signal(sleeper: subprocess.Popen[bytes]) -> None:
    began = processes.start_of(sleeper.pid)
    assert began is not None
    processes.signal_exactly(sleeper.pid, began - 1, signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        sleeper.wait(0.2)
    processes.signal_exactly(sleeper.pid, began, signal.SIGKILL)
    assert sleeper.wait(10) == -signal.SIGKILL
