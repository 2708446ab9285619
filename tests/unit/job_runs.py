"""Runs on this computer as the host: start one, await it, and look at what it left."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orchestrator import jobs
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Job, RunState
from orchestrator.stack.runtime_files import lay_out

HOST = HereHost()


@contextlib.contextmanager
def agent_in(base: Path) -> Iterator[Agent]:
    """The machine's half of orch, laid out in a new folder; its runs are ended afterwards."""
    base.mkdir()
    agent = Agent(sys.executable, str(lay_out(base)), str(base))
    yield agent
    for started in base.glob("runs/*/started.json"):
        if not (started.parent / "exit.json").exists():
            jobs.cancel(HOST, agent, started.parent.name, 0)


def python(code: str, run_id: str = "r", **fields: Any) -> Job:
    return Job(run_id=run_id, argv=("python", "-c", code), python=sys.executable, cwd="/", **fields)


def shell(text: str, run_id: str = "r", **fields: Any) -> Job:
    return Job(run_id=run_id, argv=("sh", "-c", text), python=sys.executable, cwd="/", **fields)


def to_the_end(agent: Agent, job: Job, **more: Any) -> tuple[RunState, bytes]:
    jobs.start(HOST, agent, job, **more)
    output = bytearray()
    jobs.follow(HOST, agent, job.run_id, 0, output.extend)
    return jobs.state(HOST, agent, job.run_id), bytes(output)


def until(true: Callable[[], Any], seconds: float = 30) -> Any:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        found = true()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it never came true")


def folder(agent: Agent, run_id: str = "r") -> Path:
    return Path(jobs.run_dir(agent, run_id))


def started(agent: Agent, run_id: str = "r") -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder(agent, run_id) / "started.json").read_text())
    return value


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def environ_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
