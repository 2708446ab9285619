"""Runs that end because the machine has too little: real limits of the kernel, and how they are told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator import jobs
from orchestrator.errors import RunFailed
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Completed, Exit, Job, TreeLink
from orchestrator.runtime.agent.ending import Facts, ObservedStop, explain
from orchestrator.stack.runtime_files import lay_out

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it sets limits in the kernel")


class HostInGroup(HereHost):
    """This computer, with every command in one control group."""

    def __init__(self, group: Path) -> None:
        self._group = group

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        enter = ("sh", "-c", f'echo $$ > {self._group}/cgroup.procs && exec "$@"', "sh")
        return super().run([*enter, *argv], **options)


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A control group with 64 MiB of memory, of either version."""
    legacy = Path("/sys/fs/cgroup/memory")
    top, limit = (
        (legacy, "memory.limit_in_bytes") if legacy.is_dir() else (Path("/sys/fs/cgroup"), "memory.max")
    )
    group = top / f"orch-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no control group with a memory limit can be made here: {error}")
    swap = group / "memory.swap.max"
    if swap.exists():
        swap.write_text("0")
    yield group
    for _ in range(100):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.05)


def agent_at(base: Path) -> Agent:
    base.mkdir(parents=True, exist_ok=True)
    return Agent(sys.executable, str(lay_out(base)), str(base))


def ended(host: HereHost, agent: Agent, job: Job) -> Exit:
    jobs.start(host, agent, job)
    jobs.follow(host, agent, job.run_id, 0, lambda _: None)
    found = jobs.state(host, agent, job.run_id).exit
    assert found
    return found


GREEDY = "x = bytearray(1); [x.extend(bytes(1 << 20)) for _ in range(400)]"


@root_only
def test_the_kernel_kills_a_job_that_takes_too_much(small_memory: Path, tmp_path: Path) -> None:
    agent = agent_at(tmp_path)
    found = ended(
        HostInGroup(small_memory), agent, Job("r", ("python", "-c", GREEDY), sys.executable, cwd="/")
    )
    assert (found.code, found.signal, found.reason) == (None, 9, "out_of_memory")
    trace = (tmp_path / "runs" / "r" / "trace.jsonl").read_text()
    assert f'"memory":{64 << 20}' in trace


@root_only
def test_the_kernel_kills_a_child_of_the_job(small_memory: Path, tmp_path: Path) -> None:
    code = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {GREEDY!r}]) != 0)"
    found = ended(
        HostInGroup(small_memory),
        agent_at(tmp_path),
        Job("r", ("python", "-c", code), sys.executable, cwd="/"),
    )
    assert (found.code, found.signal, found.reason) == (1, None, "out_of_memory")


@root_only
def test_a_job_killed_by_hand_in_a_small_group_is_not_out_of_memory(
    small_memory: Path, tmp_path: Path
) -> None:
    job = Job("r", ("sh", "-c", "kill -KILL $$"), sys.executable, cwd="/")
    assert ended(HostInGroup(small_memory), agent_at(tmp_path), job).reason == "signal"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, 6 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place], capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@root_only
@pytest.mark.parametrize("last_words", ["exit 1", "kill -BUS $$"])
def test_a_full_disk_is_told_and_does_not_keep_the_run_from_ending(
    small_disk: Path, tmp_path: Path, last_words: str
) -> None:
    agent = agent_at(small_disk / "base")
    code = tmp_path / "code"
    code.mkdir()
    fill = f"cat /dev/zero > big 2> /dev/null; cat /dev/zero > big2 2> /dev/null; {last_words}"
    job = Job("r", ("sh", "-c", fill), sys.executable, trees=(TreeLink(str(code), ".", copied=True),))
    found = ended(HereHost(), agent, job)
    assert found.reason == "disk_full" and "no space left" in found.detail
    assert os.statvfs(small_disk).f_bavail == 0
    assert {entry.path for entry in jobs.outputs(HereHost(), agent, "r")} == {"big", "big2"}


@root_only
def test_a_run_does_not_start_on_a_full_disk(small_disk: Path) -> None:
    agent = agent_at(small_disk / "base")
    with open(small_disk / "ballast", "wb", buffering=0) as ballast, pytest.raises(OSError, match="No space"):
        while True:
            ballast.write(b"\0" * 4096)
    job = Job("r", ("true",), sys.executable, cwd="/")
    with pytest.raises(RunFailed, match="No space left on device"):
        jobs.start(HereHost(), agent, job)
    (small_disk / "ballast").unlink()
    assert ended(HereHost(), agent, job).reason == "completed"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (Facts(0, None), "completed"),
        (Facts(0, None, group_kills=1), "completed"),
        (Facts(0, None, full="/x"), "completed"),
        (Facts(0, None, observed=ObservedStop.JOB), "observed"),
        (Facts(1, None, observed=ObservedStop.JOB), "failed"),
        (Facts(0, None, observed=ObservedStop.STARTED_BY_JOB), "observed"),
        (Facts(1, None, observed=ObservedStop.STARTED_BY_JOB), "observed"),
        (Facts(None, 9, observed=ObservedStop.STARTED_BY_JOB), "signal"),
        (Facts(0, None, cancelled=True, observed=ObservedStop.JOB), "cancelled"),
        (Facts(None, 15, cancelled=True), "cancelled"),
        (Facts(None, 15), "signal"),
        (Facts(None, 9, group_kills=0, global_kills=0), "signal"),
        (Facts(None, 9, group_kills=2, global_kills=2), "out_of_memory"),
        (Facts(None, 9, global_kills=1), "out_of_memory"),
        (Facts(137, None, global_kills=1), "out_of_memory"),
        (Facts(1, None, global_kills=1), "failed"),
        (Facts(1, None, global_kills=1, log_tail=b"BrokenProcessPool: A process ..."), "out_of_memory"),
        (Facts(1, None, log_tail=b"BrokenProcessPool: A process ..."), "failed"),
        (Facts(1, None, full="/x"), "disk_full"),
        (Facts(None, 7, full="/x"), "disk_full"),
        (Facts(1, None, log_tail=b"RESOURCE_EXHAUSTED: /x; No space left on device"), "disk_full"),
        (
            Facts(
                1, None, log_tail=b"OSError: Not enough free space to write 100000000 bytes after offset 128"
            ),
            "disk_full",
        ),
        (Facts(1, None, log_tail=b"ResourceExhaustedError: OOM when allocating"), "device_out_of_memory"),
        (Facts(1, None, log_tail=b"torch.OutOfMemoryError: CUDA out of memory."), "device_out_of_memory"),
        (
            Facts(1, None, log_tail=b"XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory"),
            "device_out_of_memory",
        ),
        (Facts(1, None, log_tail=b"RESOURCE_EXHAUSTED: Quota exceeded for reads"), "failed"),
        (Facts(0, None, log_tail=b"CUDA out of memory; a smaller batch was taken"), "completed"),
        (Facts(127, None, full="/x", not_found="The command x was not found."), "failed"),
    ],
)
def test_reasons(facts: Facts, reason: str) -> None:
    said = explain(facts)
    assert said["reason"] == reason
    assert said["detail"].endswith(".") and said["detail"][0].isupper()
