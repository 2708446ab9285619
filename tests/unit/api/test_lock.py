"""orch lock: what a project names becomes exact versions with hashes."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from orchestrator.api.locking import lock
from orchestrator.errors import StackError, UsageError
from orchestrator.model import Silent
from orchestrator.stack import read_lock
from orchestrator.stack.pythons import compiled_for


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages instead of an index."""
    folder = tmp_path / "index"
    folder.mkdir()
    add(folder, "needed", "1.0")
    add(folder, "wanted", "1.0", "Requires-Dist: needed\n")
    settings = tmp_path / "uv.toml"
    settings.write_text(f"[pip]\nno-index = true\nfind-links = ['{folder}']\n")
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a project"
    folder.mkdir()
    return folder


def add(index: Path, name: str, version: str, requires: str = "") -> None:
    """Add a package to the index."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(index / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def versions(path: Path) -> dict[str, str]:
    return {pin.name: pin.version for pin in read_lock(path).pins}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("requirements.in", "wanted\n"),
        ("requirements.txt", "wanted>=1\n"),
        ("pyproject.toml", '[project]\nname = "p"\nversion = "1"\ndependencies = ["wanted"]\n'),
    ],
)
def test_what_the_project_names_and_what_that_needs(project: Path, source: str, text: str) -> None:
    (project / source).write_text(text)
    made = lock(project, None, Silent())
    path = project / "requirements.lock"
    assert (made.path, made.source, made.packages) == (str(path), str(project / source), 2)
    assert versions(path) == {"needed": "1.0", "wanted": "1.0"}
    assert compiled_for(read_lock(path)) == f"=={made.python}.*", "another computer takes the same Python"


def test_versions_stay_until_they_are_to_be_newer(project: Path, index: Path) -> None:
    (project / "requirements.in").write_text("wanted\n")
    lock(project, None, Silent())
    add(index, "needed", "2.0")
    lock(project, None, Silent())
    assert versions(project / "requirements.lock")["needed"] == "1.0"
    lock(project, None, Silent(), upgrade=True)
    assert versions(project / "requirements.lock")["needed"] == "2.0"


def test_the_python_that_the_project_asks_for(project: Path) -> None:
    (project / "requirements.in").write_text("wanted\n")
    (project / ".python-version").write_text("3.99\n")
    with pytest.raises(
        StackError, match=r"No installed Python is a version that .*: .*\.python-version asks"
    ):
        lock(project, None, Silent())
    assert not (project / "requirements.lock").exists()


def test_elsewhere_than_on_linux_it_is_for_machines_too(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "requirements.in").write_text("wanted; sys_platform == 'linux'\nneeded\n")
    monkeypatch.setattr("sys.platform", "darwin")
    lock(project, None, Silent())
    marked = {pin.name: pin.marker for pin in read_lock(project / "requirements.lock").pins}
    assert marked == {"needed": "", "wanted": "sys_platform == 'linux'"}


def test_what_nothing_satisfies_leaves_the_lock_as_it_is(project: Path) -> None:
    (project / "requirements.in").write_text("wanted\n")
    before = lock(project, None, Silent()).path
    text = Path(before).read_text()
    (project / "requirements.in").write_text("wanted>1\n")
    with pytest.raises(StackError, match=r"(?s)requirements.in cannot be locked:.*wanted>1"):
        lock(project, None, Silent())
    assert Path(before).read_text() == text


@pytest.mark.parametrize("name", ["uv.lock", "pylock.toml"])
def test_a_lock_that_is_found_first_is_not_passed_over(project: Path, name: str) -> None:
    """A requirements.lock beside it would be read by nobody."""
    (project / name).write_text("version = 1\n")
    (project / "requirements.in").write_text("wanted\n")
    with pytest.raises(UsageError, match="is this project's lock already") as refused:
        lock(project, None, Silent())
    assert str(refused.value.next_command).startswith("uv lock" if name == "uv.lock" else "orch lock ")
    assert not (project / "requirements.lock").exists()


def test_a_pylock_is_written_where_it_is_named(project: Path) -> None:
    (project / "requirements.in").write_text("wanted\n")
    made = lock(project, project / "pylock.toml", Silent())
    assert (made.packages, versions(project / "pylock.toml")) == (2, {"needed": "1.0", "wanted": "1.0"})


def test_nothing_that_names_packages(project: Path) -> None:
    with pytest.raises(UsageError, match="nothing says which packages it needs"):
        lock(project, None, Silent())
    with pytest.raises(UsageError, match="does not exist"):
        lock(project / "missing", None, Silent())
    (project / "requirements.txt").write_text("wanted\n")
    with pytest.raises(UsageError, match="would be overwritten by its own lock"):
        lock(project / "requirements.txt", project / "requirements.txt", Silent())


def test_own_code_is_refused_before_a_lock_is_written(project: Path) -> None:
    (project / "requirements.txt").write_text("wanted\n-e ../common\n")
    with pytest.raises(StackError, match=r"requirements\.txt:2: '-e \.\./common' is a folder"):
        lock(project, None, Silent())
    assert not (project / "requirements.lock").exists()


@pytest.mark.parametrize("before", [None, "# the lock of before\n"])
def test_a_lock_that_pins_too_little_does_not_stay(project: Path, index: Path, before: str | None) -> None:
    """A pyproject.toml is read by uv alone, so only its lock shows the URL."""
    url = (index / "wanted-1.0-py3-none-any.whl").as_uri()
    (project / "pyproject.toml").write_text(
        f'[project]\nname = "p"\nversion = "1"\ndependencies = ["wanted @ {url}"]\n'
    )
    path = project / "requirements.lock"
    if before:
        path.write_text(before)
    with pytest.raises(StackError, match=r"pyproject\.toml: 'wanted @ file:"):
        lock(project, None, Silent())
    assert (path.read_text() if path.exists() else None) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("environment.yml", "dependencies:\n- python>=3.8\n- pip\n- wanted=1\n"),
        ("Pipfile", '[packages]\nwanted = "*"\n[requires]\n'),
    ],
)
def test_a_conda_environment_or_a_pipfile(project: Path, index: Path, name: str, text: str) -> None:
    (project / name).write_text(text)
    made = lock(project, None, Silent())
    assert versions(Path(made.path)) == {"needed": "1.0", "wanted": "1.0"}
    assert made.source == str(project / name)
    assert bool(made.notes) == (name == "environment.yml")
    assert compiled_for(read_lock(Path(made.path))) == f"=={made.python}.*"
    add(index, "needed", "2.0")
    lock(project / name, None, Silent())
    assert versions(Path(made.path))["needed"] == "1.0", "versions stay"


def test_the_python_of_a_conda_environment_must_be_there(project: Path) -> None:
    (project / "environment.yml").write_text("dependencies:\n- python=3.99\n- wanted\n")
    with pytest.raises(StackError, match=r"environment\.yml asks for"):
        lock(project, None, Silent())
    assert not (project / "requirements.lock").exists()


def test_a_conda_package_that_the_index_lacks(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "environment.yml").write_text("dependencies:\n- unheard-of\n")
    monkeypatch.chdir(project)
    with pytest.raises(StackError, match=r"(?s)package index by the same names.*unheard-of") as refused:
        lock(Path(), None, Silent())
    assert refused.value.next_command == "orch lock    # after an edit of environment.yml"


def test_without_any_list_the_next_step_copies_no_environment(project: Path) -> None:
    """`pip list` in an ordinary shell names packages that have nothing to do with the project."""
    with pytest.raises(UsageError) as refused:
        lock(project, None, Silent())
    assert str(refused.value.next_command).startswith("orch lock ")


def test_a_refused_lock_stops_plan_and_init_as_it_stops_lock(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from orchestrator.api import plan
    from orchestrator.cli.init import init

    monkeypatch.chdir(project)
    (project / "requirements.txt").write_text("wanted\n-e ../common\n")
    (project / "requirements.lock").write_text("-e ../common\n")
    (project / "train.py").touch()
    init()
    shown = capsys.readouterr().out
    assert "requirements.txt:2: '-e ../common' is a folder" in shown
    assert "Next: orch lock    # after the edit, then: orch up orch.yaml" in shown
    with pytest.raises(StackError, match=r"^requirements\.txt:2: '-e \.\./common' is a folder") as refused:
        plan("orch.yaml")
    assert refused.value.next_command == "orch lock    # after the edit"
    assert refused.value.exit_code == 5
