"""A command whose script or module no machine will have is refused before anything is rented."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.profile import load
from orchestrator.profile.command import modules_of
from orchestrator.runs.program import require_program
from tests.unit import here_cloud


def required(folder: Path, command: str, files: dict[str, str]) -> None:
    profile = here_cloud.project(folder, "")
    profile.write_text(profile.read_text().replace("python train.py", f"{command!r}"))
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    require_program(load(profile), Path(sys.executable))


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("python train.py", {}),
        ("python -m job", {"job.py": ""}),
        ("python -u -m pkg.job", {"pkg/job.py": ""}),
        ("python -m pkg", {"pkg/__main__.py": ""}),
        ("python -m timeit", {}),
        ("python -m yaml.no_such", {}),
        ('python -c "import yaml, json"', {}),
        ('python -c "import job; job.main()"', {"job.py": ""}),
        ('python -c "from pkg import job"', {"pkg/job.py": ""}),
        ("python -m {name}", {}),
        ("sh -c true", {}),
        ("python made/late.py", {".orchignore": "", "made/late.py": ""}),
    ],
)
def test_it_passes(tmp_path: Path, command: str, files: dict[str, str]) -> None:
    required(tmp_path, command, files)


@pytest.mark.parametrize(
    ("command", "files", "said"),
    [
        ("python train.py", {".orchignore": "train.py\n"}, "train.py is in .*, and is not sent"),
        ("python ./train.py", {".orchignore": "*.py\n"}, "train.py is in .*, and is not sent"),
        ("python -m job", {"job.py": "", ".orchignore": "job.py\n"}, "job.py is in .*, and is not sent"),
        ("python -m jbo", {"job.py": ""}, "there is no module jbo: neither"),
        ("python -m pkg.job", {"pkg/__init__.py": ""}, "there is no module pkg.job: neither"),
        ('python -c "import absent_one"', {}, "there is no module absent_one: neither"),
        ('python -c "from absent_one.two import x"', {}, "there is no module absent_one: neither"),
    ],
)
def test_it_is_refused(tmp_path: Path, command: str, files: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        required(tmp_path, command, files)


def test_what_is_ignored_by_git_is_refused_unless_git_tracks_it(tmp_path: Path) -> None:
    import subprocess

    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    ignored = {".gitignore": "train.py\n"}
    with pytest.raises(UsageError, match="not sent"):
        required(tmp_path, "python train.py", ignored)
    subprocess.run([*git, "add", "-f", "train.py"], check=True)
    required(tmp_path, "python train.py", ignored)


def test_only_imports_without_a_condition_are_needed() -> None:
    text = "import a.b\ntry:\n  import c\nexcept ImportError:\n  c = None\nfrom d import e\nfrom . import f"
    assert modules_of(("python", "-c", text)) == ("a.b", "d")
    assert modules_of(("python", "-c", "import (")) == modules_of(("python", "train.py")) == ()
