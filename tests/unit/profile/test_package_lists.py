"""Packages of a conda environment or a Pipfile, as requirements."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.profile.package_lists import PackageList, read_package_list
from orchestrator.profile.resolve import requirements_of


def read(folder: Path, name: str, text: str) -> PackageList:
    (folder / name).write_text(text)
    return read_package_list(folder / name)


@pytest.mark.parametrize(
    ("conda", "pip"),
    [
        ("numpy", "numpy"),
        ("numpy=1.26", "numpy==1.26.*"),
        ("numpy=1.26.*", "numpy==1.26.*"),
        ("numpy=1.26.4=py311_0", "numpy==1.26.4"),
        ("numpy==1.26", "numpy==1.26"),
        ("numpy 1.26.4", "numpy==1.26.4"),
        ("numpy >=1.20", "numpy>=1.20"),
        ("conda-forge::numpy>=1.20", "numpy>=1.20"),
        ("pytorch=2.1", "torch==2.1.*"),
    ],
)
def test_a_conda_version_as_pip_writes_it(tmp_path: Path, conda: str, pip: str) -> None:
    found = read(tmp_path, "environment.yml", f"dependencies:\n  - {conda}\n")
    assert [each.text for each in found.requirements] == [pip]


def test_a_conda_environment(tmp_path: Path) -> None:
    text = "name: x\nchannels: [defaults]\ndependencies:\n- python=3.11\n- pip\n- cudatoolkit=11\n- numpy\n"
    text += "- pip:\n  - keras>=3\n  - -e ../common\nprefix: /opt/conda\n"
    found = read(tmp_path, "environment.yml", text)
    listed = [(each.line, each.text) for each in found.requirements]
    assert listed == [(7, "numpy"), (9, "keras>=3"), (10, "-e ../common")]
    assert found.python == "==3.11.*"
    assert "from the package index by the same names" in found.notes[0]
    assert found.notes[1] == "Left out, because the index has no such package: cudatoolkit."


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("dependencies:\n- numpy=1.2|1.3\n", r"environment\.yml:2: 'numpy=1.2\|1.3' is not a name"),
        ("name: x\n", "no list of dependencies"),
        ("dependencies: [\n", r"environment\.yml:"),
    ],
)
def test_a_conda_environment_that_cannot_be_read(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read(tmp_path, "environment.yml", text)


def test_a_pipfile(tmp_path: Path) -> None:
    text = """\
[packages]
numpy = "*"
keras = "==3.1"
scipy = "1.2"
requests = {version = ">=2", extras = ["socks"], sys_platform = "== 'linux'"}
common = {path = "../common", editable = true}
far = {git = "https://example.org/far.git", ref = "v1"}

[dev-packages]
pytest = "*"

[requires]
python_version = "3.11"
"""
    found = read(tmp_path, "Pipfile", text)
    assert [(each.line, each.text) for each in found.requirements] == [
        (2, "numpy"),
        (3, "keras==3.1"),
        (4, "scipy==1.2"),
        (5, "requests[socks]>=2 ; sys_platform == 'linux'"),
        (6, "../common"),
        (7, "far @ git+https://example.org/far.git@v1"),
    ]
    assert (found.python, found.notes) == ("==3.11.*", ())


@pytest.mark.parametrize(
    ("url", "told"), [("https://pypi.org/simple", False), ("https://packages.example/simple", True)]
)
def test_an_index_of_a_pipfile_that_is_not_used_is_told(tmp_path: Path, url: str, told: bool) -> None:
    text = f'[[source]]\nurl = "{url}"\nname = "one"\n[packages]\nnumpy = "*"\n'
    assert bool(read(tmp_path, "Pipfile", text).notes) == told


def test_a_pipfile_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Pipfile: "):
        read(tmp_path, "Pipfile", "[packages\n")
    with pytest.raises(UsageError, match="numpy is neither"):
        read(tmp_path, "Pipfile", "[packages]\nnumpy = 3\n")


def test_a_pyproject_that_configures_tools_names_no_packages(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert requirements_of(tmp_path) == tmp_path / "pyproject.toml"
    (tmp_path / "environment.yml").write_text("dependencies: []\n")
    assert requirements_of(tmp_path) == tmp_path / "environment.yml"
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert requirements_of(tmp_path) == tmp_path / "pyproject.toml"
