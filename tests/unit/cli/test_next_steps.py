"""The next command of a failure leads on: it is not the one that failed, and it shows what is needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from orchestrator.cli import main
from orchestrator.session.project import Project
from tests.unit.memory_cloud import opened_lease


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "orch.yaml").write_text(
        "version: 1\nname: p\ncloud: local\nresources: {memory: 60 TiB, disk: 50 TiB}\n"
        "train: {command: [python, t.py]}\n"
    )
    (folder / "t.py").write_text("print(1)\n")
    (folder / "requirements.lock").write_text("")
    monkeypatch.chdir(folder)
    return Project(folder)


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: str
) -> tuple[int, str, str]:
    """The exit code, what was printed, and the next command."""
    monkeypatch.setattr(sys, "argv", ["orch", *argv])
    with pytest.raises(SystemExit) as left:
        main()
    found = capsys.readouterr()
    text = found.out + found.err
    steps = [line.removeprefix("Next: ") for line in text.splitlines() if line.startswith("Next: ")]
    return int(left.value.code or 0), text, steps[0] if steps else ""


@pytest.mark.parametrize("verb", ["report", "logs", "watch", "rerun"])
@pytest.mark.parametrize("leased", [False, True])
def test_a_run_that_is_not_known_leads_to_the_list_of_runs(
    verb: str,
    leased: bool,
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if leased:
        opened_lease(project, "p")
    code, _, step = said(monkeypatch, capsys, verb, "nope")
    assert (code, step) == (2, "orch runs    # lists the runs of this project")


@pytest.mark.parametrize("verb", ["runs", "logs", "report"])
def test_without_a_run_the_machine_decides_what_comes_first(
    verb: str, project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(monkeypatch, capsys, verb)[2] == "orch up orch.yaml"
    opened_lease(project, "p")
    assert said(monkeypatch, capsys, verb)[2].startswith("orch train")


@pytest.mark.parametrize("verb", [("plan",), ("up", "--yes")])
def test_a_machine_that_this_computer_cannot_be_leads_to_what_to_lower(
    verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, step = said(monkeypatch, capsys, *verb, "orch.yaml")
    assert code == 4
    assert "memory 61,440 GiB, disk 51,200 GiB." in text
    assert step.startswith("in the profile, lower resources.memory to ")
    assert " GiB, lower resources.disk to " in step and step.endswith("; or choose a cloud")
