"""`train --local-parity` where this computer has data that the machine was not sent."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.project import Project

pytestmark = [pytest.mark.machine, pytest.mark.slow]

FALLS_BACK = """
import os, random
from pathlib import Path
if os.path.isdir("my_data"):
    print("real", sum(len(path.read_bytes()) for path in sorted(Path("my_data").iterdir())))
else:
    print("mock", random.Random(1).random())
Path("out").mkdir(exist_ok=True)
Path("out/model.txt").write_text("trained")
"""
"""The script that was certified IDENTICAL on random numbers: it trains without its data, too."""


def test_data_that_only_this_computer_has_are_named_before_any_step(project: Project) -> None:
    folder = project.folder
    (folder / "my_data").mkdir()
    for number in range(4):
        (folder / "my_data" / f"{number}.bin").write_bytes(b"x" * 500)
    (folder / ".gitignore").write_text("my_data/\n")
    (folder / "train.py").write_text(FALLS_BACK)
    (folder / "keras.py").touch()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    project.orch("up", "orch.yaml")

    error = project.json("train", "--local-parity", "--run-id", "one", code=7)["error"]
    assert error["kind"] == "DataNotSent"
    assert "reads 2 kB that no profile declares: my_data/ (4 files)." in error["message"]
    assert "data:\n  - source: my_data" in error["message"]
    assert not (folder / "out").exists(), "the reference wrote into the user's folder"
    assert not list((folder / ".orch/here/runs").iterdir()), "it is gone with its copy"
    recorded = json.loads((folder / "runs/one/run.json").read_text())
    assert recorded["exit"]["reason"] == "not_started"
    assert recorded["parity"]["verdict"] == "NOT COMPARED"
    assert [each["name"] for each in recorded["parity"]["undeclared"]] == ["my_data"]

    screen = project.orch("train", "--local-parity", "--run-id", "two", code=7).err
    assert "my_data/ (4 files)" in screen and "data:\n  - source: my_data\n" in screen
    assert "Next: orch init --add-data my_data && orch train --run-id two --local-parity" in screen

    command = error["next_command"].partition(" && ")[0]
    assert command == "orch init --add-data my_data"
    project.orch(*command.split()[1:])
    goes_on = ("--set", "parity.on_mismatch=warn")  # without TensorFlow there is nothing to compare
    project.orch("train", "--local-parity", "--run-id", "three", *goes_on)
    assert "real 2000" in project.orch("logs", "three").out
    assert Path(folder / "runs/three/outputs/out/model.txt").read_text() == "trained"


FAILS_FIRST = """
import os, sys
if "ORCH_OBSERVE_DIR" in os.environ:
    sys.exit("no card is free")
print("trained")
os.makedirs("out")
open("out/model.txt", "w").close()
"""


def test_first_steps_that_fail_stop_no_run_that_is_to_be_only_warned(project: Project) -> None:
    (project.folder / "train.py").write_text(FAILS_FIRST)
    (project.folder / "keras.py").touch()
    project.orch("up", "orch.yaml")
    stopped = project.orch("train", "--local-parity", "--run-id", "one", code=6)
    assert "no card is free" in stopped.out + stopped.err
    goes_on = ("--set", "parity.on_mismatch={not_compared: warn}")
    warned = project.orch("train", "--local-parity", "--run-id", "two", *goes_on)
    assert "no card is free" in warned.out + warned.err
    assert "trained" in project.orch("logs", "two").out


READS_AROUND = """
import os, random
from pathlib import Path
for path in (Path("../.env"), Path.home() / ".config/job/seed"):
    print(path.name, path.read_text().strip() if path.exists() else "absent")
Path("out").mkdir(exist_ok=True)
Path("out/model.txt").write_text("trained")
"""


@pytest.mark.parametrize("place", ["../.env", "~/.config/job/seed"])
def test_files_around_the_project_are_named_before_any_step(
    project: Project, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "someone"
    (home / ".config/job").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    folder = project.folder
    file = folder.parent / ".env" if place == "../.env" else home / ".config/job/seed"
    file.write_text("SEED=7\n")
    (folder / "train.py").write_text(READS_AROUND)
    (folder / "keras.py").touch()
    project.orch("up", "orch.yaml")
    screen = project.orch("train", "--local-parity", "--run-id", "one", code=7).err
    recorded = json.loads((folder / "runs/one/run.json").read_text())
    assert [each["name"] for each in recorded["parity"]["undeclared"]] == [place]
    assert "nothing was compared" in recorded["parity"]["detail"] and place in screen


def test_data_at_a_path_of_another_run_are_busy(project: Project) -> None:
    """As where two runs would only share the machine: a scheduler may repeat the command."""
    folder = project.folder
    (folder / "data").mkdir()
    (folder / "data/a.txt").write_text("a")
    (folder / "keras.py").touch()
    (target := folder.parent / "of-both").symlink_to(folder / "data")
    (folder / "train.py").write_text(f"import os, time\nprint(os.listdir('{target}'))\ntime.sleep(600)\n")
    with (folder / "orch.yaml").open("a") as profile:
        profile.write(f"data: [{{source: data, target: {target}}}]\n")
    project.orch("up", "orch.yaml")
    project.orch("train", "--run-id", "one", "--detach")

    (folder / "train.py").write_text("print('two')\n")
    error = project.json("train", "--local-parity", "--parallel", "--run-id", "two", code=15)["error"]
    assert error["kind"] == "Busy"
    assert f"The run one has its data at {target} until it ends" in error["message"]
    assert "is still running, at $" in error["exists"]
    assert error["next_command"] == "orch logs -f one    # then the same command again"
    assert not list((folder / ".orch/here/runs").iterdir()), "the reference's run stayed here"

    error = project.json("train", "--parallel", "--run-id", "three", code=15)["error"]
    assert error["next_command"] == "orch logs -f one    # then the same command again"
    project.orch("cancel", "one")
    project.orch("train", "--run-id", "three")
    assert "two" in project.orch("logs", "three").out
