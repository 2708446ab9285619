"""Variables of the shell that a script reads and its machine would not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.lint import Checked, Surroundings, check
from orchestrator.profile import Profile, load
from orchestrator.runs.lint_check import check_project, hint, lint
from orchestrator.runs.shell_variables import advice_for_unsent
from tests.said import Said

PROFILE = """version: 1
name: job
cloud: local
code: {path: .}
stack: {lock: requirements.lock}
train: {command: [python, train.py], env: {SENT: "1"}}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "loading").mkdir(parents=True)
    monkeypatch.chdir(folder)
    (folder / "requirements.lock").write_text("")
    (folder / "orch.yaml").write_text(PROFILE)
    (folder / "train.py").write_text("import loading.files\n")
    (folder / "loading/__init__.py").write_text("from loading.names import NAME\n")
    (folder / "loading/files.py").write_text("from os import environ\nDATA = environ['DATA_DIR']\n")
    (folder / "loading/names.py").write_text("import os\nNAME = os.getenv('SENT')\n")
    return folder


def profile(folder: Path, *overrides: str) -> Profile:
    return load(folder / "orch.yaml", overrides=overrides)


def findings(found: Checked | None) -> list[tuple[str, int, str]]:
    return [(each.path, each.line, each.message) for each in found.findings] if found else []


def test_a_read_in_an_imported_module_is_said_with_what_to_add(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_DIR", "/no/such folder")
    monkeypatch.setenv("SENT", "2")
    said = (
        "reads DATA_DIR, which is set here and not in the profile: "
        "add  train.env: {DATA_DIR: {from_env: DATA_DIR}}"
    )
    expected = [("loading/files.py", 2, said)]
    assert findings(check_project(profile(project))) == expected
    assert [f for f in findings(lint(profile="orch.yaml")) if "DATA_DIR" in f[2]] == expected
    lines = Said()
    hint(project / "orch.yaml", lines)
    assert f"  loading/files.py:2:8 ORC824 {said}" in lines.lines
    assert lines.lines[0].endswith("; `orch lint` shows it:")
    assert [f for f in findings(lint()) if "DATA_DIR" in f[2]] == expected, "what was said shows it"
    (project / "orch.yaml").rename(project / "gpu.yaml")
    other = Said()
    hint(project / "gpu.yaml", other)
    command = re.search(r"`orch lint --profile (\S+)`", other.lines[0])
    assert command and [f for f in findings(lint(profile=command[1])) if "DATA_DIR" in f[2]] == expected
    (project / "gpu.yaml").rename(project / "orch.yaml")
    assert findings(check_project(profile(project, "train.env.DATA_DIR=x"))) == []
    monkeypatch.delenv("DATA_DIR")
    assert findings(check_project(profile(project))) == []


def test_a_folder_of_this_computer_is_declared_as_data(project: Path) -> None:
    images = project.parent / "images"
    images.mkdir()
    (project / "own").mkdir()
    given = {"A": str(images), "B": str(project / "own"), "C": str(project.parent), "D": "/usr"}
    declared = "data=[{source: ../images, target: pictures}]"
    assert advice_for_unsent(profile(project), given) == {
        "A": 'data: [{source: "../images", target: "images"}]  and  train.env: {A: "images"}',
        "B": 'train.env: {B: "own"}',
        "C": 'train.env: {C: "…"}',
        "D": "train.env: {D: {from_env: D}}",
    }
    assert advice_for_unsent(profile(project, declared), {"A": str(images)}) == {
        "A": 'train.env: {A: "pictures"}'
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_TOKEN", "hunter2"),
        ("AWS_ACCESS_KEY_ID", "hunter2"),
        ("DATABASE", "postgres://me:hunter2@host/db"),
        ("HUB", "hf_hunter2"),
        ("MANY_LINES", "hunter2\nhunter2"),
        ("WAREHOUSE_LOGIN", "hunter2"),
        ("LEARNING_RATE", "0.3"),
        ("PATH_THAT_IS_NOT_HERE", "/hunter2"),
    ],
)
def test_no_value_is_shown_as_any_may_be_a_secret(project: Path, name: str, value: str) -> None:
    assert advice_for_unsent(profile(project), {name: value}) == {
        name: f"train.env: {{{name}: {{from_env: {name}}}}}"
    }


def test_variables_of_every_machine_of_orch_and_those_compared_are_left_out(project: Path) -> None:
    names = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "ORCH_RUN_ID", "TF_DETERMINISTIC_OPS", "SENT")
    assert advice_for_unsent(profile(project), dict.fromkeys(names, "1")) == {}


@pytest.mark.parametrize(
    "code",
    [
        "x = os.environ['X']",
        "x = os.environ.get('X', 'C:\\\\data')",
        "x = os.getenv('X')",
        "x = os.getenv(key='X')",
        "NAME = 'X'\nx = os.environ[NAME]",
        "x = 1 if 'X' in os.environ else 2",
        "os.environ.setdefault('X', '1')",
        "os.environ['X'] = os.environ.get('X', '1')",
        "x = os.environ['X']\nos.environ['X'] = '1'",
    ],
)
def test_ways_to_read(code: str) -> None:
    around = Surroundings(unsent={"X": "train.env: {X: …}"})
    found = check({"a.py": f"import os\n{code}\nprint(os.getenv('X'))\n"}, surroundings=around)
    assert [each.rule for each in found.findings if each.rule == "ORC824"] == ["ORC824"]


@pytest.mark.parametrize(
    "code", ["os.environ['X'] = '1'\nx = os.environ['X']", "x = os.getenv('Y')", "x = {}['X']"]
)
def test_what_needs_nothing_of_the_shell(code: str) -> None:
    around = Surroundings(unsent={"X": "train.env: {X: …}"})
    found = check({"a.py": f"import os\n{code}\n"}, surroundings=around)
    assert [each for each in found.findings if each.rule == "ORC824"] == []
