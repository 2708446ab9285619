"""The profile that `orch init` writes: from what lies in the folder, always valid, always the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from orchestrator.lint import checkpoint_folders
from orchestrator.profile import Profile, json_schema, load, starter
from orchestrator.profile.load import to_data
from orchestrator.profile.tree import read_tree

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


def started(project: Path) -> Profile:
    text = starter(project)
    assert text == starter(project)
    path = project / "orch.yaml"
    path.write_text(text)
    Draft202012Validator(json_schema()).validate(_listed(to_data(read_tree(text.encode(), "orch.yaml"))))
    return load(path, environ={})


def _listed(value: object) -> object:
    """As an editor sees it: lists for tuples, and no key without a value."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items() if item is not None}
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def test_an_empty_folder(tmp_path: Path) -> None:
    project = tmp_path / "2024 My Project!"
    project.mkdir()
    profile = started(project)
    assert (profile.name, profile.cloud, profile.data) == ("my-project", "local", ())
    assert (profile.stack.lock, profile.train.outputs) == (None, ())
    assert "No lock with hashes was found. Make one: orch lock" in starter(project)


def test_the_digits_example(tmp_path: Path) -> None:
    for name in ("train.py", "prepare.py", "requirements.lock"):
        (tmp_path / name).write_bytes((DIGITS / name).read_bytes())
    path = tmp_path / "orch.yaml"
    path.write_text(starter(tmp_path))
    profile = load(path, environ={}, files=True)
    assert profile.stack.lock == tmp_path / "requirements.lock"
    assert profile.train.command == ("python", "train.py")
    assert profile.train.outputs == ("out",)
    assert [(data.target, data.prepare) for data in profile.data] == [("data", ("python", "prepare.py"))]


def test_a_project_with_everything(tmp_path: Path) -> None:
    for folder in ("data", "datasets", "inputs", ".venv/bin", "src"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("/data/\n*.pyc\n")
    (tmp_path / "src" / "train.py").write_text(
        "load('./datasets/a.csv'); save(\"models/m.keras\"); print('data set')"
    )
    (tmp_path / ".venv" / "bin" / "python").symlink_to("/bin/true")
    for lock in ("requirements.txt", "uv.lock"):
        (tmp_path / lock).write_text("")
    profile = started(tmp_path)
    assert profile.stack.lock == tmp_path / "uv.lock"
    assert profile.stack.python == tmp_path / ".venv" / "bin" / "python"
    assert profile.train.command == ("python", "src/train.py")
    assert [data.target for data in profile.data] == ["data", "datasets"]
    assert profile.train.outputs == ("models",)


def test_a_script_of_another_name(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("def f(): ...")
    (tmp_path / "a.py").write_text("if __name__ == '__main__': ...")
    assert started(tmp_path).train.command == ("python", "a.py")
    (tmp_path / "my_training.py").write_text("if __name__ == '__main__': ...")
    assert started(tmp_path).train.command == ("python", "my_training.py")


SCRIPTS = """\
[project.scripts]
report = "made.report:main"
train = "made.cli:main"
elsewhere = "click:main"
"""


@pytest.mark.parametrize("below", ["", "src"])
def test_the_console_script_of_a_package(tmp_path: Path, below: str) -> None:
    """The package is not installed on a machine: its module is started from the code that was sent."""
    package = tmp_path / below / "made"
    package.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(SCRIPTS)
    (package / "report.py").write_text("def main(): ...")
    (package / "cli.py").write_text("def main(): open('out/model', 'w')\nif __name__ == '__main__': main()")
    train = started(tmp_path).train
    assert (train.command, train.outputs) == (("python", "-m", "made.cli"), ("out",))
    assert dict(train.env) == ({"PYTHONPATH": "src"} if below else {})
    (package / "cli.py").write_text("def main(): ...")
    assert started(tmp_path).train.command == (
        "python",
        "-c",
        "import sys, made.cli as m; sys.exit(m.main())",
    )


@pytest.mark.parametrize("text", ["[project", "[project]\nscripts = 3", '[project.scripts]\na = "b; c:d"'])
def test_console_scripts_that_cannot_be_started(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert started(tmp_path).train.command == ("python", "train.py")


@pytest.mark.parametrize("code", ["c['out']['dir']", "c.get('out')", "{'out': 1}", "f()['out']"])
def test_a_key_is_no_output(tmp_path: Path, code: str) -> None:
    (tmp_path / "train.py").write_text(f"{code}\nlogs = ['logs/a']\n")
    assert started(tmp_path).train.outputs == ("logs",)


NAMES = st.text(alphabet="aZ0.-_ é'\"#:{}[]&*!|>%@`\\", min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..")
)


@given(NAMES, st.lists(NAMES.map(lambda name: f"{name}.py"), max_size=2), st.text(max_size=60))
def test_whatever_a_folder_holds_the_profile_is_valid(name: str, scripts: list[str], code: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / name
        (project / "data").mkdir(parents=True)
        for script in scripts:
            (project / script).write_text(f"if __name__ == '__main__': open('data/x')\n{code}")
        started(project)


@pytest.mark.parametrize("others", [(), ("setup.py", "conftest.py")])
def test_the_only_script_is_the_one_that_trains(tmp_path: Path, others: tuple[str, ...]) -> None:
    for name in ("fit.py", *others):
        (tmp_path / name).write_text("print(1)\n")
    assert "command: python fit.py" in starter(tmp_path, None)


RESUMES = """
import keras, os, tensorflow as tf
FOLDER = os.path.join("work", "ckpt")
calls = [keras.callbacks.BackupAndRestore(FOLDER), keras.callbacks.ModelCheckpoint("best.keras")]
manager = tf.train.CheckpointManager(tf.train.Checkpoint(), directory=PLACE, max_to_keep=2)
"""


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ('"a b: c"', ("work/ckpt", "a b: c")),
        ('"./ckpt/"', ("work/ckpt", "ckpt")),
        ('"/tmp/x"', ("work/ckpt",)),
        ('f"run-{n}"', ("work/ckpt",)),
        ('"../x"', ("work/ckpt",)),
        ('"all*"', ("work/ckpt",)),
        ('"~/x"', ("work/ckpt",)),
        ('"work/ckpt"', ("work/ckpt",)),
    ],
)
def test_what_the_script_resumes_from_is_named(tmp_path: Path, place: str, named: tuple[str, ...]) -> None:
    (tmp_path / "train.py").write_text(RESUMES.replace("PLACE", place))
    path = tmp_path / "orch.yaml"
    path.write_text(starter(tmp_path, checkpoints_of=checkpoint_folders))
    assert load(path, environ={}).train.checkpoints == named


@given(st.text(max_size=20))
def test_whatever_a_folder_of_checkpoints_is_called_the_profile_is_valid(name: str) -> None:
    code = f"import keras\nkeras.callbacks.BackupAndRestore({name!r})\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "orch.yaml"
        (path.parent / "train.py").write_text(code)
        path.write_text(starter(path.parent, checkpoints_of=checkpoint_folders), encoding="utf-8")
        load(path, environ={})
