"""What `orch init` says to a newcomer: what it found, what is missing, and the next command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked_orch import orch

NOTEBOOK = '{"cells": []}'
PIN = f"--hash=sha256:{'0' * 64}"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    project = tmp_path / "p1"
    project.mkdir()
    monkeypatch.chdir(project)
    yield project


def said(*argv: str, code: int = 0) -> str:
    done = orch(*argv, cwd=Path.cwd())
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_without_a_script_the_line_to_edit_is_named(here: Path) -> None:
    (here / "requirements.lock").write_text("")
    text = said("init")
    number = int(text.split("No script was found: line ")[1].split()[0])
    assert (here / "orch.yaml").read_text().splitlines()[number - 1].startswith("  command: python train.py")
    assert f"Next: edit line {number} of orch.yaml, then: orch up orch.yaml" in text
    assert "name: p1\n" in (here / "orch.yaml").read_text()
    assert json.loads(orch("init", "--force", "--json", cwd=here).stdout)["command_found"] is False


def test_of_several_scripts_all_are_examples(here: Path) -> None:
    for name in ("a", "b"):
        (here / name).mkdir()
        (here / name / "fit.py").write_text("if __name__ == '__main__': ...")
    assert "for example `python a/fit.py` or `python b/fit.py`." in said("init")


def test_a_missing_script_is_told_with_the_nearest_files_and_a_command(here: Path) -> None:
    (here / "src").mkdir()
    (here / "src/train_model.py").write_text("if __name__ == '__main__': ...")
    (here / "requirements.lock").write_text("")
    assert "No script" not in said("init")
    profile = here / "orch.yaml"
    profile.write_text(profile.read_text().replace("src/train_model.py", "train.py"))
    for verb in ("plan", "up"):
        text = said(verb, "orch.yaml", code=2)
        assert f"there is no train.py in {here}; the nearest Python files are src/train_model.py" in text
        assert "Next: orch plan orch.yaml --set 'train.command=python src/train_model.py'" in text


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        (
            {},
            [
                "No file of requirements names nbconvert and ipykernel, which the notebook needs.",
                "Next: add nbconvert and ipykernel to requirements.in, then: orch lock, then: "
                "orch up orch.yaml",
            ],
        ),
        (
            {"requirements.txt": "keras\nnbconvert\n"},
            [
                "requirements.txt lacks ipykernel, which the notebook needs.",
                "Next: add ipykernel to requirements.txt, then: orch lock, then: orch up orch.yaml",
            ],
        ),
        ({"requirements.txt": "jupyter\n"}, ["Next: orch lock, then: orch up orch.yaml"]),
        (
            {"requirements.in": "nbconvert", "requirements.lock": f"nbconvert==7.16.4 {PIN}\n"},
            [
                "requirements.lock lacks ipykernel, which the notebook needs.",
                "Next: add ipykernel to requirements.in, then: orch lock, then: orch up orch.yaml",
            ],
        ),
        (
            {"requirements.lock": f"nbconvert==7.16.4 {PIN}\nipykernel==6.29.5 {PIN}\n"},
            ["Next: orch up orch.yaml"],
        ),
    ],
)
def test_a_notebook_is_executed_and_its_packages_are_looked_for(
    here: Path, files: dict[str, str], lines: list[str]
) -> None:
    (here / "digits.ipynb").write_text(NOTEBOOK)
    for name, text in files.items():
        (here / name).write_text(text)
    printed = said("init").splitlines()
    assert any(line.startswith("No script was found, but the notebook digits.ipynb") for line in printed)
    assert not [line for line in lines if line not in printed], printed


def test_a_lock_that_is_refused_is_told_for_a_notebook_too(here: Path) -> None:
    (here / "digits.ipynb").write_text(NOTEBOOK)
    (here / "requirements.lock").write_text("nbconvert==7.16.4\n")
    text = said("init")
    assert "Wrote orch.yaml" in text and "Next: orch lock" in text


def test_an_empty_folder_of_data_is_told(here: Path) -> None:
    (here / "empty/below").mkdir(parents=True)
    (here / "full/below").mkdir(parents=True)
    (here / "full/below/a.csv").write_text("1")
    for _ in ("a new profile", "an existing one"):
        text = said("init", "--add-data", "empty", "--add-data", "full")
        assert "empty contains 0 files" in text and "full contains" not in text


def test_an_existing_profile_is_told_that_force_loses_edits(here: Path) -> None:
    (here / "train.py").write_text("")
    said("init")
    before = (here / "orch.yaml").read_text()
    (here / "orch.yaml").write_text(f"{before}# mine\n")
    text = said("init", code=2)
    assert "Next: orch init --output orch-2.yaml    # --force instead overwrites orch.yaml" in text
    assert "your edits in it are lost" in text
    said("init", "--output", "orch-2.yaml")
    assert (here / "orch-2.yaml").read_text() == before
    assert "--output orch-3.yaml" in said("init", code=2)
    assert (here / "orch.yaml").read_text().endswith("# mine\n")


@pytest.mark.parametrize(
    ("settings", "declared"),
    [
        ('{"data_dir": "data/img", "output_dir": "out"}', True),
        ('{"data_dir": "elsewhere"}', False),
        ('{"output_dir": "data"}', False),
    ],
)
def test_a_folder_of_data_that_only_the_settings_name_is_found(
    here: Path, settings: str, declared: bool
) -> None:
    (here / "train.py").write_text('import json\ncfg = json.load(open("config.json"))\n')
    (here / "config.json").write_text(settings)
    (here / "data/img").mkdir(parents=True)
    (here / "data/img/1.png").write_text("1")
    said("init")
    assert ("  - source: data\n" in (here / "orch.yaml").read_text()) is declared
