"""How the training of a project is started: found anywhere in the folder, in a form that Python can run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.profile import load, starter
from orchestrator.profile.start_command import StartKind, find_start, nearest_scripts

GUARD = "if __name__ == '__main__': print('trained')\n"


def written(project: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    return project


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"src/pipeline/train_model.py": GUARD}, "python src/pipeline/train_model.py"),
        (
            {"src/pipeline/train_model.py": f"import model\n{GUARD}", "src/pipeline/model.py": ""},
            "python src/pipeline/train_model.py",
        ),
        (
            {"src/pipeline/train_model.py": f"from . import model\n{GUARD}", "src/pipeline/model.py": ""},
            "python -m src.pipeline.train_model",
        ),
        (
            {"src/pipeline/train_model.py": f"import src.pipeline.m\n{GUARD}", "src/pipeline/m.py": ""},
            "python -m src.pipeline.train_model",
        ),
        (
            {"src/pipeline/train_model.py": f"from pipeline import m\n{GUARD}", "src/pipeline/m.py": ""},
            "python -m pipeline.train_model",
        ),
        ({"a/b/fit.py": GUARD, "a/b/__init__.py": "", "a/helpers.py": ""}, "python -m a.b.fit"),
        (
            {"a/fit.py": f"import m\n{GUARD}", "a/m.py": "", "a/__init__.py": ""},
            "python a/fit.py",
        ),
        ({"config.py": "", "code/train.py": "print('trained')"}, "python code/train.py"),
        ({"tools/plot.py": GUARD, "code/train-2.py": GUARD, ".x/train.py": GUARD}, "python code/train-2.py"),
    ],
)
def test_a_script_deep_in_the_project_is_found_and_starts(
    tmp_path: Path, files: dict[str, str], command: str
) -> None:
    start = find_start(written(tmp_path, files))
    assert (start.kind, start.command) == (StartKind.SCRIPT, command)
    env = {**os.environ, "PYTHONPATH": start.below, "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, *shlex.split(command)[1:]]
    assert subprocess.check_output(argv, cwd=tmp_path, env=env, text=True) == "trained\n"
    (tmp_path / "orch.yaml").write_text(starter(tmp_path))
    assert " ".join(load(tmp_path / "orch.yaml", environ={}).train.command) == command


FIT = "import keras\nmodel = keras.Sequential()\nmodel.fit([], [])\n"
IN_MAIN = "from torch import nn\ndef step(loss): loss.backward()\ndef main(): step(nn)\n"
MAIN = f"{IN_MAIN}if __name__ == '__main__':\n    main()\n"
LIBRARY = "import keras\ndef fit(model): model.fit([], [])\nclass Net:\n    def go(self): self.fit()\n"
GUARDS = ("if (__name__ == '__main__'):\n", 'if "__main__" == __name__:\n')


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"src/app/main.py": FIT}, "python src/app/main.py"),
        ({"src/app/main.py": MAIN, "src/app/deep/er/plot.py": GUARD}, "python src/app/main.py"),
        ({"code/run_model.py": FIT, "code/lib.py": LIBRARY}, "python code/run_model.py"),
        ({"code/lib.py": LIBRARY, "code/go.py": GUARD}, "python code/go.py"),
        ({"code/fit_it.py": f"{IN_MAIN}main()\n", "setup.py": "", "x.py": ""}, "python code/fit_it.py"),
        ({"model_run.py": FIT, "config.py": "X = 1\n"}, "python model_run.py"),
        ({"a_plot.py": GUARD, "model_run.py": MAIN}, "python model_run.py"),
        ({"a/b/c/forest.py": "from sklearn import svm\nsvm.SVC().fit(1, 2)\n"}, "python a/b/c/forest.py"),
        *(
            ({"a/odd.py": f"{guard}    print('trained')\n", "lib.py": ""}, "python a/odd.py")
            for guard in GUARDS
        ),
    ],
)
def test_the_only_script_that_trains_is_found_by_what_it_does(
    tmp_path: Path, files: dict[str, str], command: str
) -> None:
    start = find_start(written(tmp_path, files))
    assert (start.kind, start.command) == (StartKind.SCRIPT, command)


@pytest.mark.parametrize("folder", ["data", "archive"])
def test_a_script_is_found_beside_many_files_of_data(tmp_path: Path, folder: str) -> None:
    written(tmp_path, {f"{folder}/{number}.png": "" for number in range(2100)})
    assert find_start(written(tmp_path, {"src/app/main.py": FIT})).command == "python src/app/main.py"


@pytest.mark.parametrize("code", [LIBRARY, "x = 1\n", "def f(:\n", "model.train()\n"])
def test_a_file_that_trains_nothing_when_started_is_no_script(tmp_path: Path, code: str) -> None:
    files = {"src/app/model.py": code, "src/app/other.py": ""}
    assert find_start(written(tmp_path, files)).kind is StartKind.NONE


def test_of_two_that_train_none_is_chosen(tmp_path: Path) -> None:
    start = find_start(written(tmp_path, {"a/one.py": FIT, "b/two.py": FIT}))
    assert (start.kind, start.candidates) == (StartKind.NONE, ("python a/one.py", "python b/two.py"))


def test_several_scripts_are_named_and_none_is_chosen(tmp_path: Path) -> None:
    start = find_start(written(tmp_path, {"a/fit.py": GUARD, "b/run.py": GUARD, "b/lib.py": ""}))
    assert start.kind is StartKind.NONE
    assert start.candidates == ("python a/fit.py", "python b/run.py")


def test_the_nearest_files_are_those_with_a_similar_name(tmp_path: Path) -> None:
    written(tmp_path, {"src/p/train_model.py": "", "src/zebra.py": "", "a.py": "", "b.py": ""})
    assert nearest_scripts(tmp_path, "train.py")[0] == "src/p/train_model.py"


NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "markdown", "source": ["open('logs')"]},
            {"cell_type": "code", "source": ["%matplotlib inline\n", "model.save('models/a.keras')"]},
        ]
    }
)


def test_the_only_notebook_is_executed(tmp_path: Path) -> None:
    start = find_start(written(tmp_path, {"train.ipynb": NOTEBOOK, ".ipynb_checkpoints/train.ipynb": "{}"}))
    assert start.kind is StartKind.NOTEBOOK
    (tmp_path / "orch.yaml").write_text(starter(tmp_path))
    train = load(tmp_path / "orch.yaml", environ={}).train
    command = "python -m nbconvert --to notebook --execute train.ipynb --output-dir out"
    assert (shlex.join(train.command), train.outputs) == (command, ("out", "models"))


def test_a_script_goes_before_a_notebook_and_of_two_notebooks_none_is_chosen(tmp_path: Path) -> None:
    written(tmp_path, {"a.ipynb": "no notebook", "b.ipynb": NOTEBOOK})
    assert find_start(tmp_path).kind is StartKind.NONE
    assert len(find_start(tmp_path).candidates) == 2
    written(tmp_path, {"x/fit.py": GUARD})
    assert find_start(tmp_path).command == "python x/fit.py"


@pytest.mark.parametrize(("folder", "name"), [("p1", "p1"), ("2024-run-3", "run-3"), ("7", "project")])
def test_a_name_keeps_its_digits_where_a_name_may_have_them(tmp_path: Path, folder: str, name: str) -> None:
    project = tmp_path / folder
    project.mkdir()
    assert f"\nname: {name}\n" in starter(project)
