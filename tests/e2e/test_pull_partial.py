"""Results that cannot all come home: the log and the rest do, the record names the others, `down` says so."""

from __future__ import annotations

import json
import posixpath

import pytest

from orchestrator.model import FAR_BASE
from tests.e2e.project import Project

pytestmark = pytest.mark.machine

SCRIPT = """
import os, pathlib
print("the log")
out = pathlib.Path("out")
out.mkdir()
(out / "model.bin").write_bytes(b"weights")
(out / "Case").write_text("upper")
(out / "case").write_text("lower")
(out / "data").symlink_to("/etc")
os.mkfifo(out / "pipe")
"""


def stayed(record: dict[str, object]) -> dict[str, str]:
    return {each["path"]: each["reason"] for each in record["not_fetched"]}  # type: ignore[attr-defined]


def test_the_rest_comes_home_the_record_names_what_stayed_and_again_settles_it(project: Project) -> None:
    (project.folder / "train.py").write_text(SCRIPT)
    project.orch("up", "orch.yaml")
    record = project.json("train", "--run-id", "one")
    assert stayed(record) == {"out/data": "link_leads_out", "out/pipe": "not_a_file"}
    home = project.folder / "runs/one"
    assert (home / "output.log").read_text() == "the log\n"
    assert (home / "outputs/out/model.bin").read_bytes() == b"weights"
    assert (home / "outputs/out/case").read_text() == "lower"
    assert {**json.loads((home / "run.json").read_text()), "started": True} == record
    assert "out/data" in project.orch("train", "--run-id", "one").out

    work = posixpath.join(FAR_BASE, "runs", "one", "work", "out")
    project.orch("ssh", "--", "sh", "-c", f"rm {work}/data {work}/pipe; printf WEIGHTS > {work}/model.bin")
    (home / "outputs/out/model.bin").unlink()
    said = project.json("pull", "one", code=14)
    assert said["error"]["kind"] == "ResultsLost"
    assert "--again" in said["error"]["next_command"]
    assert stayed(said["run"])["out/model.bin"] == "changed"
    assert not (home / "outputs/out/model.bin").exists()
    refused = project.json("down", code=15)["error"]
    assert "out/model.bin" in refused["message"] and "--again" in refused["next_command"]

    again = project.json("pull", "--again")
    assert again["not_fetched"] == []
    assert (home / "outputs/out/model.bin").read_bytes() == b"WEIGHTS"

    (project.folder / "train.py").write_text("import time; time.sleep(600)")
    project.json("train", "--detach", "--run-id", "two")
    refused = project.json("pull", code=15)["error"]
    assert "two is still running" in refused["message"] and "orch logs -f two" in refused["next_command"]
    assert "two is still running" in project.json("pull", "two", code=15)["error"]["message"]
    project.json("cancel", "two")
    project.orch("pull", code=13)
    assert (project.folder / "runs/two/run.json").exists()
    project.json("down")


def test_a_declared_output_that_stays_is_14_and_down_does_not_insist(project: Project) -> None:
    (project.folder / "train.py").write_text(SCRIPT)
    profile = project.folder / "orch.yaml"
    profile.write_text(profile.read_text() + "  outputs: [out]\n")
    project.orch("up", "orch.yaml")
    said = project.orch("train", "--run-id", "one", code=14)
    assert "out/data" in said.err and "orch pull --again one" in said.err
    assert (project.folder / "runs/one/output.log").read_text() == "the log\n"
    down = project.orch("down")
    assert "out/data" in down.err
