"""A machine whose agent lies, and a job that attacks, met with the command line alone."""

from __future__ import annotations

import time

import pytest

from tests.e2e.project import Project

pytestmark = pytest.mark.machine

JOB = """
import os, pathlib, time
print("\\x1b]0;owned\\x07\\x1b[2Jthe log", flush=True)
pathlib.Path("model.bin").write_bytes(b"weights")
pathlib.Path("metrics.json").write_text("[" * 5000)
with open("sparse", "wb") as file:
    os.truncate(file.fileno(), 10 << 40)
time.sleep(3)  # its output is read until here
log = pathlib.Path.cwd().parent / "output.log"
log.unlink()
log.symlink_to("/dev/zero")
"""

LIAR = """
import os, sys
real = os.path.join(os.path.dirname(os.path.abspath(__file__)), "real.py")
lie = open("/opt/orch/lie").read().strip()
if sys.argv[1] == "state" and lie == "endless":
    while True:
        os.write(1, b"x" * 65536)
if sys.argv[1] == "state" and lie:
    sys.exit(print(lie))
os.execv(sys.executable, [sys.executable, "-I", real, *sys.argv[1:]])
"""

LIES = {
    "depth": "[" * 9000,
    "escapes": '{"state": "\\u001b[2J\\u001b]0;x\\u0007"}',
    "endless": "endless",
}
"""No quotes of a shell in them."""


def test_a_hostile_job_and_then_a_lying_agent(project: Project) -> None:
    (project.folder / "train.py").write_text(JOB)
    project.orch("up", "orch.yaml")
    begun = time.monotonic()
    lost = project.json("train", "--run-id", "one", code=14)
    record = lost["run"]
    assert "output.log" in lost["error"]["message"]
    assert time.monotonic() - begun < 120
    stayed = {each["path"]: each["reason"] for each in record["not_fetched"]}
    assert stayed["sparse"] == "too_large" and "output.log" in stayed
    home = project.folder / "runs/one"
    assert (home / "outputs/model.bin").read_bytes() == b"weights"
    assert b"the log" in (home / "output.log").read_bytes()
    assert sum(path.lstat().st_size for path in home.rglob("*") if path.is_file()) < 1 << 22

    agent = "for f in /opt/orch/runtime/*/enter.py; do mv $f ${f%enter.py}real.py; cat > $f <<'END'\n"
    project.orch("ssh", "--", "sh", "-c", f"true > /opt/orch/lie; {agent}{LIAR}\nEND\ndone")
    before = {path: path.lstat().st_mtime_ns for path in project.folder.rglob("*") if path.is_file()}
    for name, lie in LIES.items():
        project.orch("ssh", "--", "sh", "-c", f"cat > /opt/orch/lie <<'END'\n{lie}\nEND")
        said = project.json("pull", "one", "--again", code=8)["error"]
        assert said["kind"] == "MalformedAnswer", name
        assert said["exists"] and said["next_command"] and "fault" not in said["message"]
        assert "\x1b" not in said["message"]
    mine = {path for path in before if "runs" in path.parts and path.name != "output.log"}
    assert {path: path.lstat().st_mtime_ns for path in mine} == {path: before[path] for path in mine}
    project.orch("down", "--discard")
