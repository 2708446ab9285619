"""The scripts of a clone: the locks, the shell, quickstart's clean-up, and setup itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts"
LOCKS = [ROOT / "requirements-dev.lock", *sorted(ROOT.glob("examples/*/requirements.lock"))]


# ---------------------------------------------------------------- the locks


def pins(lock: Path) -> dict[str, set[str]]:
    """Name -> versions (several where markers choose) of a hashed requirements file."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.M):
        found.setdefault(name, set()).add(version)
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_lock_is_hashes_and_names_no_host(lock: Path) -> None:
    allowed = re.compile(r"[a-z0-9-]+==\S+( ; [^\\]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    strange = [line for line in lock.read_text().splitlines() if not allowed.fullmatch(line)]
    assert strange == []
    assert len(pins(lock)) > 10


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_lock_covers_its_project(lock: Path) -> None:
    project = tomllib.loads((lock.parent / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project.get("dependency-groups", {}).get("dev", [])
    wanted += project.get("build-system", {}).get("requires", [])
    pinned = pins(lock)
    missing = [
        line
        for line in wanted
        if not any(
            Requirement(line).specifier.contains(version)
            for version in pinned.get(canonicalize_name(Requirement(line).name), ())
        )
    ]
    assert missing == []


def test_the_example_installs_what_it_declares() -> None:
    project = ROOT / "examples/digits"
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]
    lines = (project / "requirements.in").read_text().splitlines()
    listed = [line for line in lines if line and not line.startswith("#")]
    assert [str(Requirement(line)) for line in listed] == [str(Requirement(line)) for line in declared]


# ---------------------------------------------------------------- the shell


def shell_files() -> list[Path]:
    files = [*SCRIPTS.iterdir(), *(ROOT / ".ci").iterdir()]
    return [path for path in sorted(files) if path.is_file() and path.suffix != ".py"]


@pytest.mark.parametrize("path", shell_files(), ids=lambda path: path.name)
def test_a_script_is_shell_and_can_be_run(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    assert os.access(path, os.X_OK) == (path.suffix != ".sh")
    modern = re.findall(r"\b(?:mapfile|readarray|declare -A|local -n|\$\{\w+(?:,,|\^\^)\})", path.read_text())
    assert modern == [], "macOS has bash 3.2"


RECORDER = """#!/bin/sh
echo "$*" >>"$(dirname "$0")/calls"
case "$1" in "$FAILS") exit "$WITH" ;; esac
"""


def quickstart(folder: Path, fails: str, code: int) -> tuple[int, list[str]]:
    """quickstart's exit code and the commands it gave, where the command `fails` exits with `code`."""
    (folder / "scripts").mkdir()
    for name in ("quickstart", "lib.sh"):
        shutil.copy2(SCRIPTS / name, folder / "scripts" / name)
    for name, text in (("scripts/setup", "#!/bin/sh\n"), (".venv/bin/orch", RECORDER)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    environ = {**os.environ, "FAILS": fails, "WITH": str(code)}
    ended = subprocess.run(
        [str(folder / "scripts/quickstart")],
        cwd="/",
        env=environ,
        capture_output=True,
        check=False,
        timeout=60,
    )
    return ended.returncode, (folder / ".venv/bin/calls").read_text().splitlines()


UP, TRAIN, DOWN = "up profiles/digits.yaml --yes", "train --local-parity", "down --yes"


@pytest.mark.parametrize(
    ("fails", "code", "calls"),
    [
        ("nothing", 0, [UP, TRAIN, DOWN]),
        ("up", 4, [UP, DOWN]),
        ("train", 7, [UP, TRAIN, DOWN]),
        ("down", 8, [UP, TRAIN, DOWN]),
    ],
)
def test_quickstart_always_takes_down_and_tells_what_failed(
    tmp_path: Path, fails: str, code: int, calls: list[str]
) -> None:
    assert quickstart(tmp_path, fails, code) == (code, calls)


@pytest.mark.slow
def test_setup_makes_a_clone_ready_and_then_does_nothing(tmp_path: Path) -> None:
    """In a copy of what setup needs, from another folder, with nobody to answer a prompt."""
    clone = tmp_path / "a clone"
    clone.mkdir()
    for name in ("scripts", "orchestrator"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "requirements-dev.lock"):
        shutil.copy(ROOT / name, clone)
    environ = {**os.environ, "ORCH_SETUP_PACKAGES": "0"}

    def setup() -> list[str]:
        ended = subprocess.run(
            [str(clone / "scripts/setup")],
            cwd="/",
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        assert ended.returncode == 0, ended.stderr
        return [line for line in ended.stderr.splitlines() if line.startswith("setup: python")]

    assert len(setup()) == 2
    found = subprocess.check_output(
        [str(clone / ".venv/bin/python"), "-c", "import orchestrator; print(orchestrator.__file__)"],
        cwd="/",
        text=True,
    )
    assert Path(found.strip()) == (clone / "orchestrator/__init__.py").resolve()
    assert setup() == []
    with (clone / "pyproject.toml").open("a") as file:
        file.write("\n# changed\n")
    assert len(setup()) == 1


def test_orch_forbids_no_later_version_of_what_it_needs() -> None:
    """It is installed beside schedulers such as Airflow, whose own packages it must not replace."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = [Requirement(line) for line in declared]
    assert wanted and {each.operator for one in wanted for each in one.specifier} == {">="}
