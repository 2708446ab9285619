"""The environment in which the user works: found, or made once from the lock."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from orchestrator.errors import StackError
from orchestrator.model import Lock
from orchestrator.stack import (
    attest_here,
    existing_environment,
    local_environment,
    read_back,
    read_lock,
)
from orchestrator.stack.pythons import compiled_for
from tests.unit.stack_locks import pylock, requirements_lock, uv, uv_lock


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.mark.parametrize("make", [requirements_lock, uv_lock, pylock])
def test_made_from_the_lock_once(project: Path, make: object) -> None:
    lock = read_lock(make(project))  # type: ignore[operator]
    made = local_environment(lock, project)
    assert made.made
    assert read_back(lock, attest_here(made.python)) == []
    before = made.python.parent.parent.stat().st_ino
    assert local_environment(lock, project) == made
    assert made.python.parent.parent.stat().st_ino == before


def test_another_lock_shares_the_bytecode_of_the_same_packages(project: Path, tmp_path: Path) -> None:
    first = local_environment(read_lock(requirements_lock(project)), project)
    other = requirements_lock(tmp_path, "six==1.17.0\npackaging==24.1\n")
    second = local_environment(read_lock(other), project)
    old, new = (
        Path(cache_from_source(str(next(made.python.parents[1].glob("lib/python*/site-packages/six.py")))))
        for made in (first, second)
    )
    assert old.samefile(new)


def test_an_interrupted_build_is_made_anew(project: Path) -> None:
    lock = read_lock(requirements_lock(project))
    made = local_environment(lock, project)
    folder = made.python.parent.parent
    folder.with_name(folder.name + ".json").unlink()
    shutil.rmtree(next(folder.glob("lib/python*/site-packages/six-*.dist-info")))
    (folder / "left over").touch()
    assert local_environment(lock, project) == made
    assert read_back(lock, attest_here(made.python)) == []
    assert not (folder / "left over").exists()


def test_the_users_own_comes_first(project: Path, tmp_path: Path) -> None:
    lock = read_lock(requirements_lock(project))
    active = project / "env"
    for place in (active, project / ".venv"):
        uv("venv", "--python", sys.executable, place, cwd=tmp_path)
    environ = {**os.environ, "VIRTUAL_ENV": str(active)}
    given = Path(sys.executable)
    assert local_environment(lock, project, given, environ=environ).python == given
    assert local_environment(lock, project, environ=environ).python == project / ".venv/bin/python"
    shutil.rmtree(project / ".venv")
    found = local_environment(lock, project, environ=environ)
    assert (found.python, found.made) == (active / "bin/python", False)


def test_an_activated_environment_elsewhere_is_not_the_projects(project: Path, tmp_path: Path) -> None:
    lock = read_lock(requirements_lock(project))
    uv("venv", "--python", sys.executable, tmp_path / "env", cwd=tmp_path)
    environ = {**os.environ, "VIRTUAL_ENV": str(tmp_path / "env")}
    assert local_environment(lock, project, environ=environ).made


def test_the_python_that_the_project_asks_for(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = read_lock(requirements_lock(project))
    system = Path("/usr/bin/python3")
    if not system.exists():
        pytest.skip("needs a Python of the system")
    version = subprocess.run([system, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    (project / ".python-version").write_text(version + "\n")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    made = local_environment(lock, project)
    said = subprocess.run([made.python, "-V"], capture_output=True, text=True, check=True).stdout
    assert said.split()[1] == version


def system_version() -> str:
    system = Path("/usr/bin/python3")
    if not system.exists():
        pytest.skip("needs a Python of the system")
    version = subprocess.run([system, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    if version == ".".join(map(str, sys.version_info[:3])):
        pytest.skip("needs a Python of another version than this one")
    return version


def test_the_python_that_a_lock_requires_is_found_among_the_installed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the one that runs orch, and no stack.python in the profile."""
    version = system_version()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    path = pylock(project)
    (project / "pyproject.toml").unlink()
    text = re.sub(r"requires-python = .*", f'requires-python = "=={version}"', path.read_text())
    path.write_text(text)
    assert f"=={version}" in text
    lock = read_lock(path)
    assert existing_environment(lock, project) is None
    made = local_environment(lock, project)
    assert made == existing_environment(lock, project)
    said = subprocess.run([made.python, "-V"], capture_output=True, text=True, check=True).stdout
    assert said.split()[1] == version


@pytest.mark.parametrize("kind", ["pylock", "uv.lock"])
def test_a_lock_for_a_python_that_nobody_has_says_so_before_anything_is_made(
    project: Path, kind: str
) -> None:
    path = pylock(project) if kind == "pylock" else uv_lock(project)
    path.write_text(re.sub(r"requires-python = .*", 'requires-python = ">=3.99"', path.read_text()))
    lock = Lock(path, kind, "0" * 64, ())
    with pytest.raises(StackError, match=r"ask for Python .*>=3\.99") as failed:
        existing_environment(lock, project)
    assert "uv python install" in (failed.value.next_command or "")


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        ("# uv pip compile a.in --python-version 3.12 -o a.lock", "==3.12.*"),
        ("# uv pip compile a.in --universal --python-version=3.12", ">=3.12"),
        ("# uv pip compile a.in -p 3.12", "==3.12.*"),
        ("# This file is autogenerated by pip-compile with Python 3.12", "==3.12.*"),
        ("# uv pip compile a.in", ""),
    ],
)
def test_the_python_that_requirements_were_resolved_for(project: Path, head: str, wanted: str) -> None:
    path = project / "requirements.lock"
    path.write_text(f"# This file was made by hand\n{head}\nsix==1.17.0 --hash=sha256:{'0' * 64}\n")
    assert compiled_for(read_lock(path)) == wanted


def test_requirements_for_an_absent_python_are_tried_on_this_one(project: Path) -> None:
    path = requirements_lock(project)
    path.write_text("# uv pip compile --python-version 3.99\n" + path.read_text())
    assert local_environment(read_lock(path), project).made


def test_a_python_that_nobody_has_is_named(project: Path) -> None:
    lock = read_lock(requirements_lock(project))
    (project / ".python-version").write_text("3.99.9\n")
    with pytest.raises(StackError, match=r"No installed Python is a version that .* asks for"):
        local_environment(lock, project)


def test_a_lock_whose_hashes_are_wrong_makes_nothing(project: Path) -> None:
    path = requirements_lock(project)
    path.write_text(re.sub("sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, path.read_text()))
    with pytest.raises(StackError, match="could not be created from"):
        local_environment(read_lock(path), project)
    assert not list((project.parent / "cache/stacks").glob("*.json"))
