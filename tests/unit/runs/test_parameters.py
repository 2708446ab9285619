"""What `epochs=2` after `orch train` may mean, and parameters that nothing uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.profile import Profile, load
from orchestrator.runs.parameters import report_unused, setting_meant, unused_parameters
from tests.said import Said

PROFILE = """version: 1
name: job
cloud: local
train: {{command: {command}}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('trained')\n")
    return tmp_path


def profile(folder: Path, command: str = "python train.py", *overrides: str) -> Profile:
    (folder / "orch.yaml").write_text(PROFILE.format(command=command))
    return load(folder / "orch.yaml", overrides=overrides)


def test_a_parameter_of_the_command_is_suggested_as_one_and_works(folder: Path) -> None:
    command = "python train.py --epochs {epochs}"
    profile(folder, f"'{command}'")
    assert setting_meant("epochs=2") == "Did you mean --set train.params.epochs=2?"
    assert setting_meant("--epochs=2") == "Did you mean --set train.params.epochs=2?"
    filled = profile(folder, f"'{command}'", "train.params.epochs=2")
    assert filled.train.command[-1] == "2"
    assert list(unused_parameters(filled)) == []


def test_else_the_command_line_is_named(folder: Path) -> None:
    profile(folder)
    said = setting_meant("epochs=2")
    assert "The command line of the script is train.command, in orch.yaml: python train.py." in said
    assert "--set epochs" not in said


@pytest.mark.usefixtures("folder")
def test_a_field_is_suggested_as_it_is_and_a_parameter_where_no_profile_is() -> None:
    assert setting_meant("name=x") == "Did you mean --set name=x?"
    assert setting_meant("train.env.A=1") == "Did you mean --set train.env.A=1?"
    assert setting_meant("epochs=2").startswith("Did you mean --set train.params.epochs=2, for {epochs}")


SET = ("train.params.epochs=2", "train.params.lr=1")


@pytest.mark.parametrize(
    ("code", "unused"),
    [
        ("print('trained')", ["epochs", "lr"]),
        ("import os\nprint(os.environ['ORCH_PARAM_LR'])", ["epochs"]),
        ("import os\nprint(os.environ['ORCH_PARAM_LR_MAX'])", ["epochs", "lr"]),
        ("import os\nprint([os.environ[f'ORCH_PARAM_{n}'] for n in 'AB'])", []),
    ],
)
def test_a_parameter_that_nothing_uses_is_said(folder: Path, code: str, unused: list[str]) -> None:
    (folder / "train.py").write_text("import helper\n")
    (folder / "helper.py").write_text(code)
    given, said, of_this_call = profile(folder, "python train.py", *SET), Said(), Said()
    assert list(unused_parameters(given)) == unused
    report_unused(given, said)
    report_unused(given, of_this_call, "train.params.lr=1")
    assert [line.split()[2] for line in said.lines] == [f"train.params.{name}:" for name in unused]
    assert len(of_this_call.lines) == ("lr" in unused)
