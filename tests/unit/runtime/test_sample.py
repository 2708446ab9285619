"""The sampler, on real processes; and the parts of it that are pure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator import jobs
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Job
from orchestrator.runtime import cgroups
from orchestrator.runtime.cadence import Cadence
from orchestrator.runtime.sampler import gpu
from orchestrator.stack.runtime_files import lay_out

linux_only = pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux's /proc")


def trace(tmp_path: Path, code: str) -> list[dict[str, Any]]:
    """The trace of a run of some Python code."""
    base = tmp_path / "base"
    base.mkdir()
    agent, host = Agent(sys.executable, str(lay_out(base)), str(base)), HereHost()
    jobs.start(host, agent, Job("r", ("python", "-c", code), sys.executable, cwd=str(tmp_path)))
    output = bytearray()
    jobs.follow(host, agent, "r", 0, output.extend)
    ended = jobs.state(host, agent, "r").exit
    assert ended and ended.reason == "completed", output
    text = (base / "runs" / "r" / "trace.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def last(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return [line for line in lines if line["event"] == "sample"][-1]


@linux_only
def test_a_trace_begins_with_its_version_and_ends_with_its_end(tmp_path: Path) -> None:
    lines = trace(tmp_path, "import time; time.sleep(3)")
    assert (lines[0]["event"], lines[0]["version"]) == ("header", 1)
    assert 0 < lines[0]["cores"] <= (os.cpu_count() or 1) and lines[0]["memory"] > 1 << 20
    assert lines[-1]["event"] == "end" and lines[-1]["up"] >= 3
    samples = [line for line in lines if line["event"] == "sample"]
    assert len(samples) >= 3
    for key in ("cpu_user", "asked_read", "read", "up", "own_cpu", "waited"):
        assert [line[key] for line in samples] == sorted(line[key] for line in samples)


@linux_only
def test_cpu_of_every_process_of_the_job_counts(tmp_path: Path) -> None:
    """One child has a session of its own and is waited for, one is orphaned and ends by itself."""
    burn = "import time; e = time.process_time() + 0.3\nwhile time.process_time() < e: pass"
    code = f"""
import os, subprocess, sys, time
burn = {burn!r}
exec(burn)
subprocess.run([sys.executable, "-c", burn], start_new_session=True)
if os.fork() == 0:
    if os.fork() == 0:
        exec(burn)
    os._exit(0)
os.wait()
time.sleep(1.5)
"""
    used = last(trace(tmp_path, code))
    assert 0.9 <= used["cpu_user"] + used["cpu_system"] < 1.6


@linux_only
def test_memory_bytes_and_calls(tmp_path: Path) -> None:
    code = """
import os, time
block = bytearray(os.urandom(1 << 16)) * 1024
with open("big", "wb") as file:
    file.write(block)
    os.fsync(file.fileno())
with open("big", "rb", buffering=0) as file:
    while file.read(1 << 16):
        pass
time.sleep(2)
"""
    used = last(trace(tmp_path, code))
    assert used["peak"] >= 64 << 20
    assert used["asked_written"] >= 64 << 20 and 64 << 20 <= used["asked_read"] < 80 << 20
    assert 1024 <= used["read_calls"] < 4096
    assert used["received"] is not None and (used["gpus"] is None or gpu.GpuMeter().names)


@linux_only
def test_a_short_job_is_seen_whole(tmp_path: Path) -> None:
    """Its only sample of any use is the one taken when it had ended and was not yet forgotten."""
    used = last(trace(tmp_path, "sum(range(3_000_000)); open('/dev/zero', 'rb', 0).read(5_000_000)"))
    assert used["cpu_user"] + used["cpu_system"] > 0
    assert used["asked_read"] >= 5_000_000 or not ended_processes_tell_their_bytes()


def ended_processes_tell_their_bytes() -> bool:
    """Newer kernels tell root alone."""
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return readable(Path(f"/proc/{process.pid}/io"))


def readable(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except PermissionError:
        return False


@linux_only
def test_the_sampler_is_cheap_and_says_so(tmp_path: Path) -> None:
    lines = trace(tmp_path, "import time; time.sleep(3)")
    assert last(lines)["own_cpu"] < 0.05 * lines[-1]["up"]


def test_a_week_of_a_small_job_keeps_its_detail(tmp_path: Path) -> None:
    sample_bytes = max(len(json.dumps(line)) for line in trace(tmp_path, "import time; time.sleep(0.3)"))
    cadence, elapsed, lines = Cadence(), 0.0, 0
    while elapsed < 7 * 24 * 3600:
        elapsed += cadence.next(size=lines * sample_bytes)
        lines += 1
    assert 10_000 < lines < 50_000


def test_cadence_is_dense_first_and_thrifty_always() -> None:
    cadence = Cadence()
    assert [cadence.next() for _ in range(6)] == [0.25] * 4 + [1.0] * 2
    assert cadence.next(cost=0.1) == 20.0


# ---------------------------------------------------------------- GPUs


TWO = """\
0, NVIDIA H100 80GB HBM3, 97, 41, 64231, 81559
1, NVIDIA H100 80GB HBM3, 3, 0, 17, 81559
0, NVIDIA H100 80GB HBM3, 99, 43, 64233, 81559
1, NVIDIA H100 80GB HBM3, 5, 0, 17, 81559
"""


def test_gpu_lines() -> None:
    assert gpu.parse(TWO) == [
        {"utilisation": 0.98, "memory_utilisation": 0.42, "memory": 64233 << 20, "memory_total": 81559 << 20},
        {"utilisation": 0.04, "memory_utilisation": 0.0, "memory": 17 << 20, "memory_total": 81559 << 20},
    ]


@pytest.mark.parametrize(
    ("text", "utilisation"),
    [
        ("0, GRID T4, [N/A], [N/A], 17, 15360", [None]),
        ("0, Tesla T4, 50, 1, [N/A], 15360", [0.5]),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", []),
        ("0, torn, 5", []),
        ("", []),
    ],
)
def test_gpu_lines_that_say_less(text: str, utilisation: list[float | None]) -> None:
    assert [line["utilisation"] for line in gpu.parse(text)] == utilisation


# ---------------------------------------------------------------- control groups


def test_limits_of_version_2_are_the_tightest_on_the_way_up(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for folder, cpu, memory in ((inner, "max 100000", "max"), (tmp_path / "a", "150000 100000", "1048576")):
        (folder / "cpu.max").write_text(cpu + "\n")
        (folder / "memory.max").write_text(memory + "\n")
    (inner / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    (inner / "cpu.stat").write_text("usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000\n")
    chain = (str(inner), str(tmp_path / "a"), str(tmp_path))
    found = cgroups.Cgroups(2, chain, chain)
    assert (found.cpu_limit(), found.memory_limit()) == (1.5, 1 << 20)
    assert (found.oom_kills(), found.throttled(), found.memory_peak()) == (2, 2.5, None)


def test_limits_of_version_1(tmp_path: Path) -> None:
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n")
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    found = cgroups.Cgroups(1, (str(tmp_path),), (str(tmp_path),))
    assert (found.memory_limit(), found.cpu_limit(), found.oom_kills()) == (None, None, 4)
    (tmp_path / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "memory.limit_in_bytes").write_text("4096\n")
    assert (found.memory_limit(), found.cpu_limit()) == (4096, 0.5)


def test_no_control_groups_is_no_facts() -> None:
    none = cgroups.Cgroups(0, (), ())
    assert [none.oom_kills(), none.memory_limit(), none.cpu_limit(), none.throttled()] == [None] * 4
