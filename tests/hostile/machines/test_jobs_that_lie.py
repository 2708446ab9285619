"""A job that attacks what follows it: its log, its outputs, its records. The rest still comes home."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Job, RunState, Silent, TreeLink
from orchestrator.runs import collect
from orchestrator.stack.runtime_files import lay_out

BOUND = 60.0
HOST = HereHost()

ATTACKS = """
import os, pathlib
here = pathlib.Path.cwd()
(here / "model.bin").write_bytes(b"weights")
with open("sparse", "wb") as file:
    os.truncate(file.fileno(), 10 << 40)
with open("hollow", "wb") as file:
    os.truncate(file.fileno(), 70 << 30)
(here / "loop").symlink_to("loop")
(here / "round").mkdir()
(here / "round" / "again").symlink_to("..")
(here / "outside").symlink_to("/etc")
(here / "zero").symlink_to("/dev/zero")
os.mkfifo("pipe")
(here / "escape\\x1b]0;x\\x07").write_text("x")
os.mkdir("deep")
os.chdir("deep")
for _ in range(1200):
    os.mkdir("d")
    os.chdir("d")
pathlib.Path("f").write_text("x")
os.chdir(here)
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    base = tmp_path_factory.mktemp("base")
    (base / "tree").mkdir()
    yield Agent(sys.executable, str(lay_out(base)), str(base))
    os.system(f"rm -rf {base}")  # too deep for what pytest cleans up with


def ended(agent: Agent, code: str, run_id: str) -> RunState:
    """The state of a run of this code, in a folder of its own."""
    trees = (TreeLink(f"{agent.base}/tree", ".", copied=True),)
    job = Job(run_id, ("python", "-c", code), sys.executable, trees=trees)
    jobs.start(HOST, agent, job)
    jobs.follow(HOST, agent, run_id, 0, lambda _: None)
    return jobs.state(HOST, agent, run_id)


def test_what_can_come_home_does_and_the_rest_is_named(agent: Agent, tmp_path: Path) -> None:
    begun = time.monotonic()
    assert ended(agent, ATTACKS, "r").state == "ended"
    fetched = collect.fetch(HOST, agent, "r", tmp_path / "runs" / "r", Silent())
    assert time.monotonic() - begun < BOUND
    stayed = {each.path: str(each.reason) for each in fetched.refused if not each.path.startswith("deep")}
    assert stayed == {
        "sparse": "too_large",
        "hollow": "too_large",
        "outside": "link_leads_out",
        "zero": "link_leads_out",
        "pipe": "not_a_file",
    }
    assert "train.outputs" in next(each.detail for each in fetched.refused if each.path == "sparse")
    home = tmp_path / "runs" / "r" / "outputs"
    assert (home / "model.bin").read_bytes() == b"weights"
    assert (home / "escape\x1b]0;x\x07").read_text() == "x"
    assert sum(path.lstat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 1 << 20
    assert len({each.reason for each in fetched.refused if each.path.startswith("deep")}) == 1


REPLACE_LOG = """
import os, pathlib
run = pathlib.Path.cwd().parent
pathlib.Path("model.bin").write_bytes(b"weights")
(run / "output.log").unlink()
{how}
"""


@pytest.mark.parametrize(
    "how",
    [
        "(run / 'output.log').symlink_to('/dev/zero')",
        "(run / 'output.log').symlink_to('/etc/passwd')",
        "os.mkfifo(run / 'output.log')",
        "open(run / 'output.log', 'wb').truncate(10 << 40)",
        "(run / 'output.log').mkdir()",
        "(run / 'trace.jsonl').unlink(); (run / 'trace.jsonl').symlink_to('/dev/zero')",
        "(run / 'output.log').write_bytes(b'')",
    ],
)
def test_a_log_that_is_none_keeps_nothing_else_back(agent: Agent, tmp_path: Path, how: str) -> None:
    run_id = f"log{abs(hash(how))}"
    begun = time.monotonic()
    job_state = ended(agent, REPLACE_LOG.format(how=how), run_id)
    assert job_state.state == "ended"
    fetched = collect.fetch(HOST, agent, run_id, tmp_path / "home", Silent())
    assert time.monotonic() - begun < BOUND
    assert (tmp_path / "home" / "outputs" / "model.bin").read_bytes() == b"weights"
    written = {path.name: path.lstat().st_size for path in (tmp_path / "home").rglob("*")}
    assert max(written.values()) < 1 << 20
    assert "write_bytes" in how or {each.path for each in fetched.refused} <= {"output.log", "trace.jsonl"}
